"""What goes wrong before there is an answer. A refusal is not among them: it is a result."""

from __future__ import annotations

from schemas.errors import ProblemError


class CouldNotCheckError(ProblemError):
    """A rule lacks what it needs to judge: no rules at all, or a manifest the caller did not hand over."""


class CodeUnknownError(ProblemError):
    """No finding has this code."""
