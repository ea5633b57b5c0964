"""Every code a finding may carry, one module a subject."""

from __future__ import annotations

from typing import Final

from schemas.decision import Finding
from schemas.errors import Problem
from validators.codes import composition, compute, continual, evaluation, families, routed
from validators.codes.record import CodeRecord, Owner
from validators.errors import CodeUnknownError

__all__ = ["CODES", "CodeRecord", "Owner", "explain", "problem_of"]

CODES: Final[dict[str, CodeRecord]] = {
    record.code: record
    for module in (composition, families, compute, routed, continual, evaluation)
    for record in module.RECORDS
}
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


def problem_of(finding: Finding) -> Problem:
    """A finding with the way to repair it."""
    return Problem(
        code=finding.code,
        path=finding.path,
        expected=finding.expected,
        observed=finding.observed,
        hint=explain(finding.code).recovery,
    )
