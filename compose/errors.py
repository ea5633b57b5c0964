"""Typed refusals of the engine; every one names what was wrong, where, what was expected and how to repair it."""

from __future__ import annotations

from schemas.errors import CancelledError, Path, Problem, RefusedError


class ComposeRefusedError(RefusedError):
    """A request or an input tensor the engine will not compute with."""


class MemoryLimitError(ComposeRefusedError):
    """The plan needs more memory than the limit allows; raised before any work."""


class ComposeCancelledError(CancelledError):
    """The caller cancelled; nothing was left behind."""


def refusal(code: str, *path: str | int, expected: str, observed: str, hint: str) -> ComposeRefusedError:
    """A refusal with one problem at `path`."""
    return ComposeRefusedError(problem(code, *path, expected=expected, observed=observed, hint=hint))


def problem(code: str, *path: str | int, expected: str, observed: str, hint: str) -> Problem:
    """One problem at `path`."""
    where: Path = path
    return Problem(code=code, path=where, expected=expected, observed=observed, hint=hint)
