"""What a finding about a continual state may be called (R 0x06)."""

from __future__ import annotations

from typing import Final

from validators.codes.record import CodeRecord

RECORDS: Final = (
    CodeRecord(
        "TASK_BASE_DIFFERS", "B", "algebra", "rejected", "adapter",
        "Every task was trained on the base of the state.",
        "Earlier updates act on weights they were not trained for.",
        "Build the state from adapters of one base.",
        "task_on_another_base",
    ),
    CodeRecord(
        "PARENTS_INCOMPLETE", "S", "artifact", "rejected", "spec",
        "A state keeps the state after each earlier task, oldest first.",
        "It can be neither rebuilt nor rolled back.",
        "Register the earlier states and name them as parents.",
        "parents_not_kept",
    ),
    CodeRecord(
        "TASKS_REORDERED", "S", "algebra", "rejected", "spec",
        "Tasks stand in the order in which their parents learned them.",
        "Every file loads while regularizer, selector and moments mean other tasks.",
        "Restore the order, or register the new order as a state with parents of its own.",
        "tasks_reordered",
    ),
    CodeRecord(
        "MERGED_PARENT_WITHOUT_BASIS", "S", "backward", "missing_derivation", "spec",
        "Training resumes where the earlier factors, or the basis they spanned, are kept.",
        "Inference works and the next task cannot be constrained.",
        "Resume from a parent with its factors, or declare another continual method.",
        "merged_parent_without_basis",
    ),
    CodeRecord(
        "SELECTOR_MISSING", "S", "artifact", "rejected", "spec",
        "An attentional mixture is its tasks and the selector that weighs them.",
        "The same adapters compute another function under another selector.",
        "Register the selector as a router and name it.",
        "selector_axis_changed",
    ),
    CodeRecord(
        "SELECTOR_FOREIGN", "S", "config", "rejected", "spec",
        "A cumulative update has no selector.",
        "The record would promise choices that nothing takes.",
        "Leave the selector out, or register the state in amlora_selector.",
        "lane_parts_mixed",
    ),
    CodeRecord(
        "SELECTOR_POOL_DIFFERS", "S", "algebra", "rejected", "spec",
        "The selector's pool is the tasks' adapters in their order.",
        "Each rater weighs the branch of another task.",
        "Register the selector over this history.",
        "selector_axis_changed",
    ),
    CodeRecord(
        "PAIR_MAP_INCOMPLETE", "S", "backward", "rejected", "spec",
        "Every module of the earlier tasks has the module of the newest that continues it.",
        "Training goes on with some modules unregularized.",
        "Complete the map; names of checkpoint and trainer may differ.",
        "pair_map_incomplete",
    ),
    CodeRecord(
        "SCALES_LOST_IN_CONCATENATION", "S", "algebra", "rejected", "spec",
        "Tasks of several scales keep them in their blocks.",
        "Blocks fit and the newest update is wrong by the ratio of the scales.",
        "Write each scale into its block, or keep the branches apart.",
        "heterogeneous_scales_dropped",
    ),
    CodeRecord(
        "CONCATENATION_CONTRADICTS_LANE", "S", "config", "rejected", "spec",
        "A mixture keeps its branches apart; a cumulative update stands side by side.",
        "One of the two functions is recorded and the other served.",
        "Write the concatenation of the lane.",
        "lane_parts_mixed",
    ),
    CodeRecord(
        "ORTHOGONALITY_OVERCLAIMED", "S", "evidence", "rejected", "spec",
        "Mutually orthogonal subspaces have no more dimensions together than the space.",
        "A guarantee is claimed that no factors can keep.",
        "Withdraw the claim; the state itself may be registered.",
        "orthogonality_overclaimed",
    ),
    CodeRecord(
        "EARLIER_TASK_NOT_FROZEN", "T", "backward", "rejected", "spec",
        "Earlier tasks are frozen and the newest is trained.",
        "Old adapters move and their digests with them.",
        "Correct the two sets, or register the moved adapters.",
        "stage_trainable_set_changed",
    ),
    CodeRecord(
        "TRAINABLE_AND_FROZEN", "T", "config", "conflict", "spec",
        "A name is trainable or frozen.",
        "Nobody can tell whether it moved.",
        "Remove it from one of the sets.",
        "stage_trainable_set_changed",
    ),
    CodeRecord(
        "MATRIX_OF_OTHER_TASKS", "S", "evidence", "rejected", "spec",
        "The task-time matrix has a row and a column for each task.",
        "Averages are taken over tasks that the state does not have.",
        "Give one score for each pair of tasks; a missing one is null.",
        "matrix_of_other_tasks",
    ),
)  # fmt: skip
