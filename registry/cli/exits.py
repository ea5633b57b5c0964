"""One table: which error class ends with which exit code, and how an error is told on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.markup import escape

from registry.errors import (
    CancelledError,
    ConditionError,
    ConflictError,
    DecisionError,
    DecisionRefusedError,
    DigestMismatchError,
    InternalError,
    NotAcknowledgedError,
    NotAllowedError,
    NotAuthenticatedError,
    NotFoundError,
    PreconditionRequiredError,
    Problem,
    ProblemError,
    PurgedError,
    RangeUnsatisfiableError,
    RefusedError,
    SlowBodyError,
    StaleHeadError,
    TooLargeError,
    UnavailableError,
    UsageProblemError,
    error_document,
)
from validators import CodeUnknownError, CouldNotCheckError

EXIT_CODES: Final[dict[type[ProblemError], int]] = {
    InternalError: 1,
    CancelledError: 1,
    CouldNotCheckError: 1,
    UsageProblemError: 2,
    PreconditionRequiredError: 2,
    RangeUnsatisfiableError: 2,
    SlowBodyError: 2,
    RefusedError: 3,
    TooLargeError: 3,
    DecisionError: 9,
    DecisionRefusedError: 3,
    NotFoundError: 4,
    CodeUnknownError: 4,
    PurgedError: 4,
    ConflictError: 5,
    StaleHeadError: 5,
    NotAllowedError: 6,
    NotAuthenticatedError: 6,
    DigestMismatchError: 7,
    UnavailableError: 8,
    NotAcknowledgedError: 9,
    ConditionError: 9,
}


_MOST_PLACES: Final = 3


def exit_code(error: ProblemError) -> int:
    """The exit code of the nearest class that has a row."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


def tell(error: ProblemError, *, as_json: bool) -> None:
    """Write an error to stderr, for people or for programs."""
    document = error_document(error)
    if as_json:
        sys.stderr.write(json.dumps(document) + "\n")
        return
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    if isinstance(error, DecisionError):
        _tell_decision(console, error)
        return
    for problem, places in _grouped(error):
        where = f" at {places}" if places else ""
        console.print(f"[bold red]{problem.code}[/]{escape(where)}")
        console.print(f"  expected: {escape(problem.expected)}")
        console.print(f"  observed: {escape(problem.observed)}")
        console.print(f"  repair:   {escape(problem.hint)}")
    if "head" in document:
        console.print(f"  head: {document['head']}")


def _grouped(error: ProblemError) -> Iterator[tuple[Problem, str]]:
    """Each thing that is wrong once, with its first places: a model has hundreds of modules and one thing to repair."""
    places: dict[Problem, list[str]] = {}
    for problem in error.problems:
        places.setdefault(replace(problem, path=()), []).append(problem.pointer if problem.path else "")
    for problem, found in places.items():
        named = ", ".join(place for place in found[:_MOST_PLACES] if place)
        more = len(found) - _MOST_PLACES
        yield problem, f"{named} and {more} more of {len(found)}" if more > 0 else named


def _tell_decision(console: Console, error: DecisionError) -> None:
    """The codes that stop the composition; the findings themselves are data and stand on stdout."""
    codes = ", ".join(sorted({problem.code for problem in error.problems}))
    if isinstance(error, NotAcknowledgedError):
        console.print(f"[bold yellow]not acknowledged[/]: {codes}")
        console.print(f"  repair:    what the findings say, or write acknowledge: {escape(f'[{codes}]')} into the spec")
    else:
        console.print(f"[bold red]refused[/]: {codes}")
        console.print("  repair:    what the findings say; `registry explain CODE` says more")
    if error.admission:
        console.print(f"  admission: {error.admission}")
