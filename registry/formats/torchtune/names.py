"""torchtune's module names as the hub's, and where its rows of query and key projections lie.

torchtune 0.6, `models/convert_weights.py`. Its Llama, Mistral and Gemma rotate pairs of neighbouring numbers where the
hub's rotate halves, so its query and key rows are the hub's in another order; its Qwen2 keeps the hub's order. (Its own
export to PEFT reorders lora_B for every model and no magnitude.)
"""

from __future__ import annotations

import re
from typing import Final

from registry.formats.attention import Heads

INTERLEAVED: Final = frozenset({"gemma", "gemma2", "llama", "mistral"})
KEPT: Final = frozenset({"qwen2"})
LEAVES: Final = {
    "q_proj": "q_proj",
    "k_proj": "k_proj",
    "v_proj": "v_proj",
    "output_proj": "o_proj",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "output": "lm_head",
}
"""By the last part of a name: what it is on the hub."""
_BLOCK: Final = re.compile(
    r"layers\.(?P<index>\d{1,6})\.(?:attn\.(?P<attn>q_proj|k_proj|v_proj|output_proj)|mlp\.(?P<mlp>w[123]))"
)


def hub_name(module: str) -> str | None:
    """The hub's name of a torchtune module; null for one no rule knows."""
    if module == "output":
        return "lm_head"
    match = _BLOCK.fullmatch(module)
    if match is None:
        return None
    place = f"model.layers.{int(match['index'])}"
    return f"{place}.self_attn.{LEAVES[match['attn']]}" if match["attn"] else f"{place}.mlp.{LEAVES[match['mlp']]}"


def rotated_heads(module: str, heads: Heads) -> int | None:
    """How many heads of rotated rows a layer's output has; null where nothing rotates."""
    return {"q_proj": heads.heads, "k_proj": heads.groups}.get(module.rpartition(".")[2])


def halves(count: int, head_dim: int) -> list[int]:
    """Rows of `count` heads in the hub's order: of each head first the even rows, then the odd ones."""
    return [
        head * head_dim + 2 * pair + odd for head in range(count) for odd in (0, 1) for pair in range(head_dim // 2)
    ]
