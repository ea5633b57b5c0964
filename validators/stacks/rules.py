"""The rules that decide a coordinate of a stack, each for one reason and from one place of the document.

They hold for the framework the document pins, PEFT 0.19.1. A rule reads the axes only. A rule with a `witness` is
executed by that check of that oracle; the others rest on the named section, or are derived from the components alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from schemas.decision import Coordinate, Status
from schemas.stack import VariantStack

Grade = Literal["derived", "executed", "source_reported", "not_verified"]


@dataclass(frozen=True)
class Rule:
    """Where the axes meet `applies`, `coordinate` gets `status`; `reason` names the rule, `sentence` says why."""

    coordinate: Coordinate
    status: Status
    reason: str
    applies: Callable[[VariantStack], bool]
    sentence: str
    source: str
    witness: tuple[str, str] | None = None
    derived: bool = False

    @property
    def evidence(self) -> Grade:
        """Executed by an oracle, not verified, derived from the components, or reported about the pinned framework."""
        if self.witness:
            return "executed"
        if self.status == "unverified":
            return "not_verified"
        return "derived" if self.derived else "source_reported"


def _mutates_base(s: VariantStack) -> bool:
    """PiSSA leaves a residual and LoftQ a corrected low-bit base: neither is the base one started from (V 0x09C)."""
    return s.initializer in ("pissa", "loftq")


def _two_owners(s: VariantStack) -> bool:
    return {"lora_plus", "lora_fa"} <= set(s.optimizers)


def _patterned_principal(s: VariantStack) -> bool:
    return s.initializer == "pissa" and s.rank == "patterned" and s.scale == "alpha_over_sqrt_r"


def _claimed_base(s: VariantStack) -> bool:
    return _mutates_base(s) and s.artifact == "native" and s.adapters == "several"


def _shadowed_scale(s: VariantStack) -> bool:
    return s.rank == "adalora" and s.scale == "alpha_over_sqrt_r"


def _mutated_direction(s: VariantStack) -> bool:
    return _mutates_base(s) and s.parameterization == "dora"


def _ratio_over_magnitude(s: VariantStack) -> bool:
    return "lora_plus" in s.optimizers and s.parameterization == "dora"


RULES: Final = (
    Rule(
        "algebra", "conflict", "base_claimed_by_each_adapter", _claimed_base,
        "Each native initialization moves a part of the base into its factors and so claims another base.",
        "V 0x09G", ("variant_stacks", "its squared error"),
    ),
    Rule(
        "algebra", "conflict", "quantizer_without_low_bit_base",
        lambda s: s.initializer == "loftq" and s.base == "dense",
        "LoftQ corrects the error of a quantizer; a dense base has none.",
        "V 0x07A",
    ),
    Rule(
        "config", "rejected", "allocation_refuses_dora",
        lambda s: s.rank == "adalora" and s.parameterization == "dora",
        "The AdaLoRA configuration refuses DoRA coordinates.",
        "V 0x09G",
    ),
    Rule(
        "config", "rejected", "allocation_refuses_loftq",
        lambda s: s.rank == "adalora" and s.initializer == "loftq",
        "The AdaLoRA configuration refuses the LoftQ initializer.",
        "V 0x09G",
    ),
    Rule(
        "config", "accepted_but_shadowed", "quantizer_configuration_dropped",
        lambda s: s.initializer == "loftq_config",
        "A LoftQ configuration without its initializer is accepted with a warning and dropped.",
        "V 0x09G", ("variant_stacks", "AdaLoRA with a loftq_config alone"),
    ),
    Rule(
        "config", "accepted_but_shadowed", "scale_flag_inherited", _shadowed_scale,
        "The AdaLoRA configuration inherits the rank-stabilised flag and accepts it.",
        "V 0x09G",
    ),
    Rule(
        "config", "conflict", "two_optimizers_own_b", _two_owners,
        "LoRA+ trains A and B at two rates; LoRA-FA freezes A and owns the update of B.",
        "V 0x09G", ("variant_stacks", "optimizers that own B"),
    ),
    Rule(
        "config", "conditional", "patterns_warn_at_initialization", _patterned_principal,
        "Rank or alpha patterns under rank-stabilised PiSSA are accepted with a warning.",
        "V 0x09E",
    ),
    Rule(
        "forward", "shadowed", "allocation_scale_runs", _shadowed_scale,
        "The layer executes alpha/ranknum, not alpha/sqrt(r).",
        "V 0x09G", ("variant_stacks", "scale AdaLoRA executes under rsLoRA"),
    ),
    Rule(
        "forward", "conditional", "scale_differs_by_module", _patterned_principal,
        "Every module runs with its own rank and alpha: a manifest with one pair of them describes another function.",
        "V 0x04I", ("rslora", "effective rank and alpha"),
    ),
    Rule(
        "backward", "conflict", "two_updates_for_b", _two_owners,
        "Freezing A removes the second rate, so the ratio of LoRA+ only renames the rate of B.",
        "V 0x05L",
    ),
    Rule(
        "backward", "missing_derivation", "correction_not_derived_for_dora",
        lambda s: "lora_fa" in s.optimizers and s.parameterization == "dora",
        "The correction of LoRA-FA is derived for an additive B A; normalization and magnitude gradients are missing.",
        "V 0x09G", ("variant_stacks", "the additive gradient is another"),
    ),
    Rule(
        "backward", "missing_derivation", "correction_not_derived_for_allocation",
        lambda s: "lora_fa" in s.optimizers and s.rank == "adalora",
        "Allocation and compaction have to be derived again where A is fixed and the rank changes.",
        "V 0x05L",
    ),
    Rule(
        "backward", "shadowed", "allocation_scale_in_gradients", _shadowed_scale,
        "The gradients carry the executed alpha/ranknum, not the scale that was asked for.",
        "V 0x09G",
    ),
    Rule(
        "backward", "conditional", "magnitude_group_undeclared", _ratio_over_magnitude,
        "Which group moves the magnitude follows from a classifier: one row gives it the rate of B without decay, "
        "a live release the rate of B with decay.",
        "V 0x09F", ("lora_plus", "group of a DoRA magnitude"),
    ),
    Rule(
        "artifact", "conflict", "one_residual_for_several_adapters", _claimed_base,
        "One stored base cannot be the residual of several adapters.",
        "V 0x09G", ("variant_stacks", "first adapter on the base of the second"),
    ),
    Rule(
        "artifact", "rejected", "patterned_conversion_refused",
        lambda s: _patterned_principal(s) and s.artifact == "converted",
        "The conversion to a portable adapter cannot keep a rank-stabilised scale that differs by module.",
        "V 0x09E", ("variant_stacks", "patterned rank-stabilised conversion is refused"),
    ),
    Rule(
        "artifact", "unverified", "export_of_magnitude_unverified", _mutated_direction,
        "An exact start does not show that an export keeps both the initializer's base and the magnitude.",
        "V 0x09F",
    ),
    Rule(
        "artifact", "conditional", "magnitude_policy_must_be_stored", _ratio_over_magnitude,
        "Neither name says which group the magnitude belongs to; exact resume needs the policy in the manifest.",
        "V 0x09H", ("variant_stacks", "artifact of LoRA+&DoRA"),
    ),
    Rule(
        "artifact", "conditional", "quantized_residual_differs",
        lambda s: s.initializer == "pissa" and s.base == "nf4" and s.artifact == "converted",
        "The quantized residual and the quantized base are not equal up to the converted delta.",
        "V 0x06I", ("pissa", "quantized residual against quantized W"),
    ),
    Rule(
        "merge", "unverified", "no_dense_merge_of_quantized_allocation",
        lambda s: s.rank == "adalora" and s.base == "nf4",
        "The pinned path shows no dense merge of triplets over a 4-bit base.",
        "V 0x09E",
    ),
    Rule(
        "runtime", "conditional", "runs_in_training_form_only", _patterned_principal,
        "Training runs; what runs after it is the native form on its residual base.",
        "V 0x09E",
    ),
)  # fmt: skip
