"""How NeMo lays rows of fused projections: query groups with their key and value, gate before up.

A fused query-key-value output has for every query group its query heads, one key head and one value head, each of
`head_dim` rows (NeMo, `convert_nemo_to_canonical.py`); a gated feed-forward has all gate rows, then all up rows. The
rotary convention is the hub's, so no row moves inside a head.
"""

from __future__ import annotations

from collections.abc import Mapping

from registry.formats.nemo.config import NemoSettings


def attention_rows(settings: NemoSettings) -> Mapping[str, list[int]]:
    """Rows of the fused output by the projection they belong to, in that projection's own order."""
    per_group = settings.heads // settings.groups
    found: dict[str, list[int]] = {"q_proj": [], "k_proj": [], "v_proj": []}
    for group in range(settings.groups):
        first = (per_group + 2) * group
        heads = {
            "q_proj": range(first, first + per_group),
            "k_proj": (first + per_group,),
            "v_proj": (first + per_group + 1,),
        }
        for name, numbers in heads.items():
            found[name] += [head * settings.head_dim + row for head in numbers for row in range(settings.head_dim)]
    return found


def attention_size(settings: NemoSettings) -> int:
    """Rows of a fused query-key-value output."""
    return (settings.heads + 2 * settings.groups) * settings.head_dim


def gated_rows(size: int) -> Mapping[str, range]:
    """Rows of the fused gate and up output."""
    return {"gate_proj": range(size // 2), "up_proj": range(size // 2, size)}
