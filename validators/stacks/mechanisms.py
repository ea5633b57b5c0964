"""What a stack changes against plain LoRA, and the state that each change adds to its artifact."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from schemas.stack import VariantStack

PLAIN: Final = VariantStack()
"""Plain LoRA: the stack that changes nothing."""

SCALE_STATE: Final = ("rank", "alpha", "scale_rule")

_STATE: Final[dict[str, tuple[str, ...]]] = {
    "nf4": ("packed_payload", "quantizer_type", "block_size", "scale_metadata", "compute_dtype"),
    "adalora": ("rank_pattern", "rank_number", "rank_schedule"),
    "patterned": ("rank_pattern", "alpha_pattern"),
    "pissa": ("residual_base_identity", "initial_adapter_identity", "conversion_rule"),
    "loftq": ("quantizer_identity", "coupled_base_identity"),
    "dora": ("magnitude", "normalization_axis", "runtime_variant"),
    "lora_plus": ("group_classifier", "rate_ratio"),
    "lora_fa": ("frozen_a", "correction_scale_rule"),
}
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
    own = [field for name in mechanisms(stack) for field in _STATE.get(name, ())]
    shared = [_INTERACTION[pair] for pair in pairs(stack) if pair in _INTERACTION]
    return tuple(dict.fromkeys((*SCALE_STATE, *own, *shared)))
