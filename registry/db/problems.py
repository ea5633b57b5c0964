"""Errors that several repositories raise in the same words."""

from __future__ import annotations

from typing import TypeVar

from registry.errors import NotFoundError, Problem, PurgedError

T = TypeVar("T")


def found(value: T | None, code: str, expected: str, hint: str) -> T:
    """The value, or `NotFoundError` when there is none."""
    if value is None:
        raise NotFoundError(Problem(code=code, expected=expected, observed="nothing", hint=hint))
    return value


def purged(code: str, what: str) -> PurgedError:
    """The error for something whose bytes are gone on purpose."""
    return PurgedError(
        Problem(
            code=code,
            expected="something that was not purged",
            observed=what,
            hint="It was removed on purpose: use another version or name, and other content.",
        )
    )
