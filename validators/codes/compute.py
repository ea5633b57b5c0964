"""What a finding about a compute contract, or about an adapter on a conditional base, may be called (C 0x07, 0x08)."""

from __future__ import annotations

from typing import Final

from validators.codes.record import CodeRecord

RECORDS: Final = (
    CodeRecord(
        "MAP_AXIS_SUBSTITUTED", "B", "forward", "rejected", "base",
        "The map axis of coupled query and output experts is another axis than fixed map heads.",
        "Both attention arrays have one shape, while routed object, gates and cached values differ.",
        "Write the method whose maps these are, with its own fields.",
        "axis_collapsed_into_shape",
    ),
    CodeRecord(
        "COMPOSITION_SUBSTITUTED", "B", "forward", "rejected", "base",
        "Staged and integrated composition of depth and experts are two operators.",
        "Outputs have one shape and the parameters one count, while attention, residual and cache differ.",
        "Write the composition the base was trained with.",
        "mode_outcomes_confused",
    ),
    CodeRecord(
        "PREDICTOR_USED_AS_GATE", "B", "forward", "rejected", "base",
        "The predictor decides membership; the raw router value weighs the delta.",
        "Every selected update is scaled by a probability that was trained for another purpose.",
        "Gate with the raw router value, or register the operator as a method of its own.",
        "mod_predictor_used_as_gate",
    ),
    CodeRecord(
        "ADMISSION_ORDER_SUBSTITUTED", "B", "forward", "rejected", "base",
        "Rows are admitted in the order in which the pinned dependency admits them.",
        "Under capacity other rows lose their expert than the record says.",
        "Record row order, or register priority admission as a method of its own.",
        "multimodal_sources_mixed",
    ),
    CodeRecord(
        "PADDING_POPULATION_CHANGED", "B", "forward", "rejected", "base",
        "The rows a router counts are the rows it counted in training.",
        "Capacity and the denominators of the auxiliary loss change with the padding.",
        "Keep padding rows in the router's population, or register another method.",
        "multimodal_padding_removed",
    ),
    CodeRecord(
        "NOOP_STORED_AS_ABSENT", "B", "runtime", "rejected", "base",
        "A no-op leaves out the expert's update; attention has run and its row is in the cache.",
        "Later tokens no longer see a row that the model attends to.",
        "Store the row as present with a zero update.",
        "noop_stored_as_absent",
    ),
    CodeRecord(
        "CONTRACT_FIELD_SUBSTITUTED", "B", "config", "rejected", "base",
        "A record under a method's name has every field of that method.",
        "Two configurations would share a name and a curve although their operators differ.",
        "Restore the field, or give the method another name.",
        "contract_field_substituted",
    ),
    CodeRecord(
        "PARAMETER_MISSING", "B", "config", "rejected", "base",
        "A configuration gives every operating parameter its method owns, or says not_verified.",
        "Two bases of one method and another capacity could not be told apart.",
        "Write the parameter, or not_verified.",
        "operating_parameter_left_open",
    ),
    CodeRecord(
        "PARAMETER_NOT_OWNED", "B", "config", "rejected", "base",
        "A configuration gives no operating parameter its method lacks.",
        "The figure would be recorded and change nothing.",
        "Remove the parameter.",
        "stack_flag_shadowed",
    ),
    CodeRecord(
        "PARAMETER_IMPOSSIBLE", "B", "config", "rejected", "base",
        "No more experts are selected than there are.",
        "The configuration describes no base that can run.",
        "Correct k or the number of experts.",
        "operating_parameter_impossible",
    ),
    CodeRecord(
        "BASE_CONTRACT_DIFFERS", "B", "forward", "rejected", "spec",
        "Members and target share the compute contracts of their base.",
        "The same factors act under another routing than the one they were trained with.",
        "Compose members of one conditional base.",
        "sensitivity_signature_changed",
    ),
    CodeRecord(
        "CLONED_EXPERTS_NOT_LIFTED", "B", "forward", "missing_derivation", "adapter",
        "An adapter of a dense layer acts on its cloned experts only by a recorded lift.",
        "The clones moved apart in training; one delta on all of them is another update.",
        "Train on the conditional base, or register the base with the lift that was derived.",
        "multimodal_clone_called_exact",
    ),
    CodeRecord(
        "ROUTE_PROGRAM_TOUCHED", "R", "forward", "conditional", "adapter",
        "Whoever changes a router, predictor or projector changes the routes.",
        "Rows take other paths than those the other members were trained and evaluated on.",
        "Evaluate the routes anew and acknowledge the code, or leave these modules out.",
        "route_program_changed",
    ),
    CodeRecord(
        "HARD_ROUTES_NOT_PROMISED", "C", "merge", "pass", "spec",
        "A merge of weights promises no equal function across hard routes.",
        "The sum is exact while a row near a decision may take another path.",
        "Nothing to repair; evaluate the merged adapter on the routed base.",
        "merge_across_hard_routes",
    ),
)  # fmt: skip
