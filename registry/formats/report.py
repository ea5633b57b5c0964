"""Problems about foreign files: text from outside is bounded and printable before it reaches a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Final

from pydantic import ValidationError

from schemas.errors import Path, Problem, RefusedError, refuse
from schemas.model import problems_of

MOST_PROBLEMS: Final = 100
_LONGEST_TEXT: Final = 160


def shown(value: object) -> str:
    """A foreign value as text: escaped and shortened."""
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def problem(code: str, path: Path, expected: str, observed: str, hint: str) -> Problem:
    """A located problem whose path may hold foreign names."""
    return Problem(code=code, path=tuple(map(_step, path)), expected=expected, observed=observed, hint=hint)


def refuse_all(problems: Iterable[Problem]) -> None:
    """Refuse with everything found (the first hundred, since a hostile file may have millions), or do nothing."""
    refuse(islice(problems, MOST_PROBLEMS))


def told_once(problems: Iterable[Problem]) -> list[Problem]:
    """Problems that say the same of several places as one, at the first of them, with their number."""
    found: dict[tuple[str, str, str], list[Problem]] = {}
    for item in problems:
        found.setdefault((item.code, item.expected, item.observed), []).append(item)
    return [
        same[0] if len(same) == 1 else replace(same[0], observed=f"{same[0].observed}, {len(same)} times")
        for same in found.values()
    ]


@contextmanager
def located(*path: str) -> Iterator[None]:
    """Put a place in front of every problem raised inside, and give a manifest's own checks the same form."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(*(replace(found, path=(*path, *found.path)) for found in error.problems)) from error
    except ValidationError as error:
        found = problems_of(error, "MANIFEST_INVALID")
        raise RefusedError(*(replace(item, path=(*path, *item.path)) for item in found)) from error


def _step(step: str | int) -> str | int:
    if isinstance(step, int) or (step.isprintable() and len(step) <= _LONGEST_TEXT):
        return step
    return shown(step)
