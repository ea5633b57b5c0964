"""What a finding about an evaluation may be called (R 0x0AB to 0x0AD)."""

from __future__ import annotations

from typing import Final

from validators.codes.record import CodeRecord

RECORDS: Final = (
    CodeRecord(
        "CELL_OUTSIDE_DESIGN", "T", "evidence", "rejected", "spec",
        "Every cell belongs to the frozen candidates, workloads, splits and nuisance tuples.",
        "A convenient seed takes the place of a missing one.",
        "Leave the cell missing, or freeze another design before looking at scores.",
        "cell_outside_design",
    ),
    CodeRecord(
        "CELL_TWICE", "T", "evidence", "conflict", "spec",
        "A cell has one outcome for each attempt.",
        "The better of two scores can be chosen afterwards.",
        "Keep both as attempts, with the reason of the retry.",
        "cell_measured_twice",
    ),
    CodeRecord(
        "FAILED_ATTEMPT_NOT_KEPT", "T", "evidence", "rejected", "spec",
        "A retry keeps the attempt that failed before it.",
        "Failures vanish from the record and reliability with them.",
        "Record every attempt from the first.",
        "failed_attempt_dropped",
    ),
    CodeRecord(
        "OUTCOME_RETRIED", "T", "evidence", "rejected", "spec",
        "Only a failure of the infrastructure is tried again; a numerical failure is an outcome.",
        "Runs are repeated until one succeeds.",
        "Keep the numerical failure as this cell's outcome.",
        "outcome_retried",
    ),
    CodeRecord(
        "HELD_OUT_OPENED_AGAIN", "T", "evidence", "rejected", "spec",
        "The held-out split is opened once, for the selected candidate and its baseline.",
        "The test chooses the winner and measures it.",
        "Select on validation alone and open the test for the frozen candidate.",
        "held_out_opened_again",
    ),
    CodeRecord(
        "SPLITS_NOT_DISJOINT", "T", "evidence", "rejected", "spec",
        "Training, route validation, selection and test are different data.",
        "What was selected on is reported as a test.",
        "Give each split data of its own.",
        "splits_overlap",
    ),
    CodeRecord(
        "CONTRAST_OUTSIDE_DESIGN", "T", "evidence", "rejected", "spec",
        "A contrast compares two candidates of the design that were declared before.",
        "Comparisons are chosen after the scores.",
        "Declare candidate and baseline in the design.",
        "cell_outside_design",
    ),
    CodeRecord(
        "QUALITY_INCOMPLETE", "T", "evidence", "rejected", "spec",
        "Target, base, unseen transfer, calibration and safety stand apart, each with a workload of its own.",
        "A gain on the target hides a loss elsewhere.",
        "Name the workload of each quality; a missing score is null.",
        "quality_averaged",
    ),
)  # fmt: skip
