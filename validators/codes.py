"""Every code a finding may carry: where it belongs, what it breaks and how to repair it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from schemas.decision import CONDITIONAL, REFUSING, Component, Coordinate, Severity, Status
from schemas.errors import Problem
from validators.errors import CodeUnknownError

Owner = Literal["spec", "adapter", "base", "registry"]


@dataclass(frozen=True)
class CodeRecord:
    """One code.

    `status` is what its coordinate of the vector becomes; `owner` is who repairs it: the author of the spec or of the
    adapter, who registers the base, or the registry itself; `failure` is the record of the failure catalogue that the
    code detects.
    """

    code: str
    predicate: Component
    coordinate: Coordinate
    status: Status
    owner: Owner
    invariant: str
    consequence: str
    recovery: str
    failure: str

    @property
    def severity(self) -> Severity:
        """What the status means for the outcome."""
        if self.status in REFUSING:
            return "refuse"
        return "condition" if self.status in CONDITIONAL else "note"


_RECORDS: Final = (
    CodeRecord(
        "BASE_WEIGHTS_DIFFER", "B", "algebra", "rejected", "spec",
        "Every member was trained on the weights it is added to.",
        "Each delta corrects weights that are not there; shapes fit and the answers are wrong.",
        "Compose members of one base, or train the member again on this one.",
        "lifecycle_portable_identity_wrong",
    ),
    CodeRecord(
        "BASE_ARCHITECTURE_DIFFERS", "B", "forward", "rejected", "spec",
        "Members and target share every configuration field that changes what the model computes.",
        "The same weights compute another function, which the delta was not trained for.",
        "Compose members of one base, or register the base with its true configuration.",
        "lifecycle_portable_identity_wrong",
    ),
    CodeRecord(
        "BASE_QUANTIZER_DIFFERS", "B", "runtime", "rejected", "spec",
        "Members and target share the representation of the frozen weights.",
        "Factors trained on a packed base also correct its rounding, which another packing does not have.",
        "Compose members of one representation, or register a recorded rebase of the member.",
        "nf4_scale_hierarchy_changed",
    ),
    CodeRecord(
        "TOKENIZER_DIFFERS", "B", "config", "conditional", "spec",
        "Members and target read the same text as the same ids.",
        "Some ids may mean other text than the one a member was trained on.",
        "Compare the tokenizers; acknowledge the code when the difference does not matter.",
        "tokenizer_differs",
    ),
    CodeRecord(
        "TOKENIZER_LENGTH_DIFFERS", "B", "config", "rejected", "spec",
        "Members and target have one number of token ids.",
        "Ids are shifted or lack their embedding rows.",
        "Compose members of one tokenizer, or extend and train again.",
        "tokenizer_differs",
    ),
    CodeRecord(
        "BASE_EVIDENCE_STRUCTURAL", "B", "evidence", "unverified", "base",
        "A base is identified by the digests of its weights.",
        "Two bases of the same shapes and configuration cannot be told apart.",
        "Register the base with evidence content, or acknowledge the code.",
        "base_not_read",
    ),
    CodeRecord(
        "BASE_EVIDENCE_DECLARED", "B", "evidence", "unverified", "base",
        "A base is identified by the digests of its weights.",
        "Neither the weights nor the target modules and their shapes could be compared.",
        "Register the base with evidence structural or content, or acknowledge the code.",
        "base_not_read",
    ),
    CodeRecord(
        "INITIALIZER_MUTATES_BASE", "B", "algebra", "rejected", "adapter",
        "A factor is added to the base it was initialized against.",
        "The initializer moved a part of the base into the factors; added to the original base it counts twice.",
        "Convert the adapter to portable factors on the original base and compose the result.",
        "pissa_residual_base_swapped",
    ),
    CodeRecord(
        "TARGET_MODULE_MISSING", "B", "forward", "rejected", "adapter",
        "Every adapted module is a module of the target base.",
        "A server that skips the unknown name answers with the base alone.",
        "Choose the base the adapter was trained on, or register it with its true module names.",
        "lifecycle_portable_identity_wrong",
    ),
    CodeRecord(
        "TARGET_SHAPE_MISMATCH", "B", "forward", "rejected", "adapter",
        "A weight [d_out, d_in] has the rows of b and the columns of a.",
        "The delta cannot be added, or acts transposed.",
        "Choose the base the adapter was trained on; transpose the delta's factors when only the orientation differs.",
        "factor_order_swapped",
    ),
    CodeRecord(
        "SITE_NOT_IN_BASE", "B", "forward", "rejected", "adapter",
        "Expert, map head and route side name parts that the target base has.",
        "The update of one routed part would reach all of the module.",
        "Choose the base whose routed parts the adapter was trained on.",
        "axis_collapsed_into_shape",
    ),
    CodeRecord(
        "FAMILY_NOT_ADDITIVE", "M", "algebra", "missing_derivation", "adapter",
        "The deployed update of every member is exactly the sum of s B A.",
        "Whatever else the family computes (a norm, a mask, a gate) is lost in the composition.",
        "Convert the member to a plain low-rank update first, where its family has a conversion.",
        "dora_magnitude_of_another_direction",
    ),
    CodeRecord(
        "TRAINING_FIELDS_FOREIGN", "T", "evidence", "conditional", "spec",
        "Members of a static fusion were trained independently of each other.",
        "An adapter made under a joint or ordered lane may need the parts it was trained with.",
        "Compose it in its own lane, or acknowledge that it stands alone here.",
        "lane_parts_mixed",
    ),
    CodeRecord(
        "SCALE_INCONSISTENT", "F", "config", "rejected", "adapter",
        "The scale rule of every factor is the rule of the adapter's family.",
        "The update is wrong by a power of the rank, with every shape intact.",
        "Register the adapter again from its own configuration.",
        "rslora_scale_stale",
    ),
    CodeRecord(
        "DTYPE_NOT_FLOAT", "F", "forward", "rejected", "adapter",
        "Factors are stored as floating-point numbers.",
        "Packed or integer codes would be added as if they were the numbers they stand for.",
        "Save the factors in a floating-point dtype and register them again.",
        "nf4_delta_written_into_codes",
    ),
    CodeRecord(
        "EXTRA_TENSOR_NOT_COMPOSED", "F", "artifact", "rejected", "adapter",
        "A composition carries every tensor that changes a member's function.",
        "The tensor would be dropped and the member with it changed.",
        "Convert the member to plain a and b, or leave it out.",
        "lifecycle_required_tensor_dropped",
    ),
    CodeRecord(
        "PAYLOAD_NOT_PORTABLE", "F", "artifact", "rejected", "adapter",
        "Members mean the same update on the registered base without further state.",
        "Native or resume factors need their own base or allocator and are another update without it.",
        "Convert the adapter to its portable form.",
        "pissa_initial_snapshot_missing",
    ),
    CodeRecord(
        "REPLACEMENT_OWNED_TWICE", "F", "artifact", "conflict", "spec",
        "A wholly replaced tensor has one owner among the members.",
        "One member's trained head would silently take the place of another's.",
        "Keep one owner, or compose adapters without trained heads.",
        "tensor_owned_twice",
    ),
    CodeRecord(
        "RANKS_UNEQUAL", "F", "algebra", "rejected", "spec",
        "In factor coordinates all members of a module share its rank.",
        "A to A and B to B cannot be added.",
        "Use a method in delta space, which takes any ranks.",
        "factor_operation_undeclared",
    ),
    CodeRecord(
        "MODULE_SETS_DIFFER", "F", "merge", "pass", "spec",
        "Every module that any member adapts is composed.",
        "Modules outside the common set hold the update of some members only.",
        "Nothing to repair; check that the smaller set was meant.",
        "modules_not_common",
    ),
    CodeRecord(
        "SCALES_DIFFER", "F", "algebra", "pass", "spec",
        "Each member's own scale goes into its own block.",
        "Tools that apply one scale to all members compute another sum.",
        "Nothing to repair.",
        "heterogeneous_scales_dropped",
    ),
    CodeRecord(
        "MEMBER_TWICE", "C", "config", "rejected", "spec",
        "A member appears once with its whole coefficient.",
        "Methods that vote or count would count one adapter as two.",
        "Name it once and add the weights.",
        "member_counted_twice",
    ),
    CodeRecord(
        "WEIGHT_ZERO", "C", "config", "pass", "spec",
        "Every member contributes to the composition.",
        "The member is recorded as a parent of something it does not change.",
        "Leave it out, unless it is meant as a record.",
        "member_without_weight",
    ),
    CodeRecord(
        "SPACE_UNDECLARED", "C", "algebra", "rejected", "spec",
        "A composition declares whether it works on deltas or on factors.",
        "The same name gives different operators in different tools.",
        "Write space: delta or space: factor.",
        "factor_operation_undeclared",
    ),
    CodeRecord(
        "SPACE_NOT_OFFERED", "C", "algebra", "rejected", "spec",
        "A method works in a space in which it is defined.",
        "A factor operation would be called a sum of deltas, or the reverse.",
        "Use a space the method offers, or the method of the wanted space.",
        "factor_operation_undeclared",
    ),
    CodeRecord(
        "FACTOR_METHOD_GAUGE", "C", "algebra", "pass", "spec",
        "A factor operation is never called a sum of deltas.",
        "Cross terms appear, and the result depends on how each member splits its delta into factors.",
        "Compare it with cat or delta_svd; balance the members to fix the gauge.",
        "factor_operation_undeclared",
    ),
    CodeRecord(
        "ALIAS_MISMATCH", "C", "config", "conflict", "spec",
        "A recorded alias means the recorded method and space.",
        "The record would say that one thing was asked for and another done.",
        "Ask by the alias alone, or by method and space alone.",
        "alias_contradicts_method",
    ),
    CodeRecord(
        "CHOICES_MISSING", "C", "config", "rejected", "spec",
        "Every choice a method owns is made in the spec.",
        "Implementations fill the gap differently and two runs differ.",
        "Add the named block to the spec.",
        "choice_left_open",
    ),
    CodeRecord(
        "CHOICES_NOT_OWNED", "C", "config", "rejected", "spec",
        "A spec holds only choices its method owns.",
        "A choice would be accepted and ignored.",
        "Remove the named block, or use the method that owns it.",
        "stack_flag_shadowed",
    ),
    CodeRecord(
        "RANK_REQUIRED", "C", "config", "rejected", "spec",
        "A method that refactors a delta is told the output rank.",
        "The size and the error of the result would be left to a default.",
        "Add rank to the spec.",
        "choice_left_open",
    ),
    CodeRecord(
        "RANK_NOT_OFFERED", "C", "config", "rejected", "spec",
        "The output rank follows from the members where the method keeps it.",
        "The rank would be accepted and ignored.",
        "Remove rank, or use delta_svd for a chosen rank.",
        "stack_flag_shadowed",
    ),
    CodeRecord(
        "RANK_TOO_LARGE", "C", "config", "rejected", "spec",
        "No matrix has a rank above its smaller side.",
        "The surplus rows and columns would be empty.",
        "Lower the rank to the smaller side of the named module.",
        "rank_beyond_shape",
    ),
    CodeRecord(
        "METHOD_ONLY_DENSE_RELEASE", "C", "merge", "rejected", "spec",
        "A composition is an adapter.",
        "A dense sum has no factors to publish and cannot be taken out of the base again.",
        "Compose with cat and make a dense release of it.",
        "dense_sum_as_adapter",
    ),
    CodeRecord(
        "DYNAMIC_PACKAGED_STATIC", "C", "algebra", "rejected", "spec",
        "An operator that depends on its input is never packaged as one matrix.",
        "A routed function is not additive; any fixed delta is wrong for some input.",
        "Release the pool with its router, or fuse with fixed coefficients in static_fusion.",
        "dynamic_route_packaged",
    ),
    CodeRecord(
        "LANE_NOT_COMPOSABLE", "C", "config", "rejected", "spec",
        "The lane independent holds one adapter and no composition.",
        "A merged child would pass for the adapter itself.",
        "Publish the adapter, or compose in static_fusion.",
        "lane_parts_mixed",
    ),
    CodeRecord(
        "LANE_NOT_SUPPORTED", "C", "runtime", "missing_derivation", "registry",
        "A lane is composed only by an operator that keeps its contract.",
        "Order or search provenance would be lost.",
        "Compose in static_fusion when the members are independent.",
        "lane_parts_mixed",
    ),
    CodeRecord(
        "HISTORY_MISSING", "S", "artifact", "rejected", "spec",
        "A continual lane names its ordered tasks and parents.",
        "Order is identity there; without it the state cannot be rebuilt or rolled back.",
        "Register the continual state, or compose independent members in static_fusion.",
        "parents_not_kept",
    ),
    CodeRecord(
        "ROUTER_MISSING", "R", "artifact", "rejected", "spec",
        "A routed lane names its router and candidate pool.",
        "Nothing says which adapter answers which input.",
        "Register the router with its pool, or fuse with fixed coefficients in static_fusion.",
        "lane_parts_mixed",
    ),
)  # fmt: skip

CODES: Final[dict[str, CodeRecord]] = {record.code: record for record in _RECORDS}
"""All records by code; a rule that yields a code outside this table fails at once."""


def explain(code: str) -> CodeRecord:
    """What a code means and how to repair it.

    Raises:
        CodeUnknownError: `CODE_UNKNOWN`.
    """
    try:
        return CODES[code]
    except KeyError as error:
        raise CodeUnknownError(
            Problem(
                code="CODE_UNKNOWN",
                expected="the code of a finding",
                observed=code[:120],
                hint="Copy the code from the decision; all of them stand in the documentation.",
            )
        ) from error
