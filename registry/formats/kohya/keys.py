"""kohya's tensor names: ``<part>_<flattened module>.lora_down.weight``, ``lora_up.weight``, ``alpha``, ``dora_scale``.

A name is flattened by writing ``_`` for every ``.`` of the module's path inside its part (sd-scripts
`networks/lora.py`, LyCORIS `wrapper.py`), so it can only be read back beside the names of a base.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from registry.formats.pairs import pair_problems
from registry.formats.report import problem, shown, told_once
from registry.formats.safetensors_file import TensorEntry
from schemas.errors import Problem

_KEY: Final = re.compile(
    r"(?P<part>lora_te[1-4]?|lycoris|lora_unet|lora_transformer|lora_prior_unet|lora_prior_te|lora_controlnet)"
    r"_(?P<flat>[^.]+)\.(?P<rest>.+)"
)
_ROLES: Final = {
    "lora_down.weight": "a",
    "lora_up.weight": "b",
    "alpha": "alpha",
    "dora_scale": "magnitude",
}
_NAMES: Final = {role: name for name, role in _ROLES.items()}
_PIECES: Final = frozenset({"a", "b", "magnitude"})
_IMAGE_PARTS: Final = frozenset(
    {"lora_unet", "lora_transformer", "lora_prior_unet", "lora_prior_te", "lora_controlnet"}
)
_FEATURES: Final = (
    ("hada_", "LoHa"),
    ("lokr_", "LoKr"),
    ("oft_", "OFT"),
    ("lora_mid", "a Tucker decomposition (lora_mid)"),
    ("diff", "a full difference"),
    ("w_norm", "trained norms"),
    ("b_norm", "trained norms"),
    ("on_input", "IA3"),
    ("weight", "IA3"),
    ("a1.", "GLoRA"),
    ("a2.", "GLoRA"),
    ("b1.", "GLoRA"),
    ("b2.", "GLoRA"),
)


@dataclass(frozen=True)
class KohyaKeys:
    """Entries by flattened name and role, the part of the model they belong to, and what was wrong."""

    modules: Mapping[str, Mapping[str, TensorEntry]]
    part: str
    problems: tuple[Problem, ...]


def is_kohya(names: Iterable[str]) -> bool:
    """Whether any name is of this grammar."""
    return any(_KEY.fullmatch(name) for name in names)


def read_keys(entries: Iterable[TensorEntry]) -> KohyaKeys:
    """Sort tensors by flattened module.

    Problems: `KEY_UNKNOWN`, `KEY_UNSUPPORTED` (with the feature), `PARTS_MIXED`, and those of `pair_problems`.
    """
    modules: dict[str, dict[str, TensorEntry]] = {}
    problems: list[Problem] = []
    parts: set[str] = set()
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _KEY.fullmatch(entry.name)
        role = _ROLES.get(match["rest"]) if match is not None else None
        if match is None or match["part"] in _IMAGE_PARTS or role is None:
            problems.append(_unread(entry, match))
            continue
        parts.add(match["part"])
        modules.setdefault(match["flat"], {})[role] = entry
    if len(parts) > 1:
        path = (next(iter(next(iter(modules.values())).values())).file,)
        hint = "Split the file: an adapter has one base, and each text encoder is a base of its own."
        problems.append(problem("PARTS_MIXED", path, "one part of a model", shown(sorted(parts)), hint))
    dora = {"magnitude"} if any("magnitude" in roles for roles in modules.values()) else set()
    factors = (piece_tensors(roles) or roles for roles in modules.values())
    # An alpha stands alone beside tensors that could not be read.
    unpaired = [] if problems else [found for roles in factors for found in pair_problems(roles, _NAMES, dora)]
    return KohyaKeys(modules, min(parts, default=""), tuple(told_once([*problems, *unpaired])))


def piece_tensors(roles: Mapping[str, TensorEntry]) -> dict[str, TensorEntry]:
    """The tensors of a factor, without the alpha."""
    return {role: entry for role, entry in roles.items() if role in _PIECES}


def _unread(entry: TensorEntry, match: re.Match[str] | None) -> Problem:
    if match is None:
        expected = "lora_te_<module>.lora_down.weight and the like"
        hint = "A tensor that is not understood cannot be dropped."
        return problem("KEY_UNKNOWN", entry.place, expected, shown(entry.name), hint)
    if match["part"] in _IMAGE_PARTS:
        hint = "No diffusion model is a listed architecture; register only an adapter of a listed text model."
        observed = f"{match['part']}: a part of a diffusion model"
        return problem("KEY_UNSUPPORTED", entry.place, "an adapter of a listed architecture", observed, hint)
    for start, feature in _FEATURES:
        if match["rest"].startswith(start):
            hint = f"{feature} is no pair of factors; train or extract a plain LoRA."
            return problem("KEY_UNSUPPORTED", entry.place, "lora_down and lora_up weights", feature, hint)
    hint = "A tensor that is not understood cannot be dropped."
    return problem("KEY_UNKNOWN", entry.place, ", ".join(_ROLES), shown(match["rest"]), hint)
