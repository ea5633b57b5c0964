"""Typed refusals shared by every room: a problem says what, where, what was expected and how to repair it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    `code` is stable and upper-case; `path` leads to the place (rendered as a JSON pointer only for people and HTTP).
    """

    code: str
    path: Path = ()
    expected: str
    observed: str
    hint: str

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer (RFC 6901)."""
        return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in self.path)


class ProblemError(Exception):
    """Base of every typed error of the product: one or more problems, never only a message."""

    def __init__(self, *problems: Problem) -> None:
        if not problems:
            raise ValueError("an error needs at least one problem")
        super().__init__(*problems)
        self.problems: tuple[Problem, ...] = problems

    @property
    def code(self) -> str:
        """The code of the first problem."""
        return self.problems[0].code

    def __str__(self) -> str:
        return "; ".join(_sentence(problem) for problem in self.problems)


def _sentence(problem: Problem) -> str:
    where = f" at {problem.pointer}" if problem.path else ""
    return f"{problem.code}{where}: expected {problem.expected}, found {problem.observed}. {problem.hint}"


class UsageProblemError(ProblemError):
    """What was asked cannot be read: an unparsable spec, weight, name or reference."""


class RefusedError(ProblemError):
    """The content was read and is refused: it breaks a rule of its format or contract."""


class DigestMismatchError(ProblemError):
    """Bytes do not have the digest under which they are known."""


class CancelledError(ProblemError):
    """The work was called off; nothing of it is kept."""


def refuse(problems: Iterable[Problem]) -> None:
    """Raise `RefusedError` with all problems, or do nothing when there are none."""
    found = tuple(problems)
    if found:
        raise RefusedError(*found)
