"""What a stack changes against plain LoRA, and the state that each change adds to its artifact."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Final

from schemas.catalogue.methods import method
from schemas.stack import VariantStack

PLAIN: Final = VariantStack()
"""Plain LoRA: the stack that changes nothing."""

_SCALE_STATE: Final = ("rank", "alpha", "scale_rule")
_FAMILIES: Final[Mapping[str, str]] = MappingProxyType({"nf4": "qlora", "alpha_over_sqrt_r": "rslora"})
"""The catalogue's row of a mechanism that has another name there."""
_WITHOUT_A_ROW: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"patterned": ("rank_pattern", "alpha_pattern")}
)
_LEARNED: Final = frozenset({"importance", "uncertainty"})
"""What only a resume of the training needs."""
_INTERACTION: Final[dict[tuple[str, str], str]] = {
    ("nf4", "dora"): "magnitude_of_the_dequantized_base",
    ("alpha_over_sqrt_r", "pissa"): "conversion_scale_convention",
    ("dora", "lora_plus"): "magnitude_group_policy",
}


def mechanisms(stack: VariantStack) -> tuple[str, ...]:
    """The mechanisms of a stack in the order of its axes; none for plain LoRA."""
    plain = PLAIN.document()
    named = [
        str(value)
        for axis, value in stack.document().items()
        if axis not in ("optimizers", "artifact", "adapters") and value != plain[axis]
    ]
    return (*named, *(name for name in stack.optimizers if name != "adamw"))


def pairs(stack: VariantStack) -> tuple[tuple[str, str], ...]:
    """Every two mechanisms that meet in the stack, in the order of its axes."""
    return tuple(combinations(mechanisms(stack), 2))


def artifact_state(stack: VariantStack) -> tuple[str, ...]:
    """The union of the parts' state with the fields only a pair has (V 0x09H)."""
    own = [field for name in mechanisms(stack) for field in _added_state(name)]
    shared = [_INTERACTION[pair] for pair in pairs(stack) if pair in _INTERACTION]
    return tuple(dict.fromkeys((*_SCALE_STATE, *own, *shared)))


def _added_state(mechanism: str) -> tuple[str, ...]:
    """What the mechanism's row of the catalogue saves beyond plain LoRA."""
    plain, row = method("lora"), method(_FAMILIES.get(mechanism, mechanism))
    if plain is None or row is None:
        return _WITHOUT_A_ROW.get(mechanism, ())
    return tuple(field for field in row.state if field not in plain.state and field not in _LEARNED)
