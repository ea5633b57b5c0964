"""One table: which error class the `type` of a problem document (RFC 9457) stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

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
    ProblemError,
    PurgedError,
    RangeUnsatisfiableError,
    RefusedError,
    SlowBodyError,
    StaleHeadError,
    TooLargeError,
    UnavailableError,
    UsageProblemError,
)
from validators import CodeUnknownError, CouldNotCheckError

PREFIX: Final = "urn:adapter-registry:"
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_CLASSES: Final[tuple[type[ProblemError], ...]] = (
    CancelledError,
    CodeUnknownError,
    ConditionError,
    ConflictError,
    CouldNotCheckError,
    DecisionError,
    DecisionRefusedError,
    DigestMismatchError,
    InternalError,
    NotAcknowledgedError,
    NotAllowedError,
    NotAuthenticatedError,
    NotFoundError,
    PreconditionRequiredError,
    PurgedError,
    RangeUnsatisfiableError,
    RefusedError,
    SlowBodyError,
    StaleHeadError,
    TooLargeError,
    UnavailableError,
    UsageProblemError,
)


def _slug(kind: type[ProblemError]) -> str:
    return _CAPITAL.sub("-", kind.__name__.removesuffix("Error")).lower()


PROBLEM_TYPES: Final[Mapping[str, type[ProblemError]]] = MappingProxyType({_slug(kind): kind for kind in _CLASSES})
"""Error classes by slug: the class name in kebab case without "error", such as ``stale-head``."""


def type_of(error: ProblemError) -> str:
    """The `type` of an error's document: that of the nearest class which has a row."""
    kind = next(kind for kind in type(error).__mro__ if kind in _CLASSES)
    return PREFIX + _slug(kind)


def class_of(problem_type: str) -> type[ProblemError] | None:
    """The error class a `type` stands for; None for one that is not of this table."""
    return PROBLEM_TYPES.get(problem_type.removeprefix(PREFIX)) if problem_type.startswith(PREFIX) else None
