"""Evaluations: cells of a frozen design, what they say together, and what a channel may ask of them (R 0x0A)."""

from __future__ import annotations

from validators.codes import evaluation

CODES = (
    "CELL_OUTSIDE_DESIGN", "CELL_TWICE", "FAILED_ATTEMPT_NOT_KEPT", "OUTCOME_RETRIED", "HELD_OUT_OPENED_AGAIN",
    "SPLITS_NOT_DISJOINT", "CONTRAST_OUTSIDE_DESIGN", "QUALITY_INCOMPLETE",
)  # fmt: skip


def test_the_codes_of_an_evaluation_are_these() -> None:
    assert tuple(record.code for record in evaluation.RECORDS) == CODES
