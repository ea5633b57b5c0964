"""Error classes of the service: a stable code and typed problems; no HTTP, no exit codes, no matching on English.

The classes of `schemas.errors` (usage, refused, digest mismatch) belong to the same family, used as they are.
"""

from __future__ import annotations

from schemas.canonical import JsonObject
from schemas.errors import CancelledError, DigestMismatchError, Problem, ProblemError, RefusedError, UsageProblemError

__all__ = [
    "CancelledError",
    "ConditionError",
    "ConflictError",
    "DecisionError",
    "DecisionRefusedError",
    "DigestMismatchError",
    "InternalError",
    "NotAcknowledgedError",
    "NotAllowedError",
    "NotAuthenticatedError",
    "NotFoundError",
    "PreconditionRequiredError",
    "Problem",
    "ProblemError",
    "PurgedError",
    "RangeUnsatisfiableError",
    "RefusedError",
    "SlowBodyError",
    "StaleHeadError",
    "TooLargeError",
    "UnavailableError",
    "UsageProblemError",
    "error_document",
]


class NotFoundError(ProblemError):
    """A name, version, digest, channel, generation or job that does not exist."""


class PurgedError(NotFoundError):
    """It existed; its bytes were purged on purpose and only the tombstone remains."""


class ConflictError(ProblemError):
    """Another change got there first, or the name belongs to something else."""


class StaleHeadError(ConflictError):
    """A publication expected another head; `head` is the current generation number (0 for an empty channel)."""

    def __init__(self, problem: Problem, head: int) -> None:
        super().__init__(problem)
        self.head = head


class NotAllowedError(ProblemError):
    """The caller lacks the permission or the token."""


class NotAuthenticatedError(NotAllowedError):
    """No token, or one that is unknown, expired or revoked."""


class TooLargeError(RefusedError):
    """More bytes than the limit that holds while reading."""


class PreconditionRequiredError(UsageProblemError):
    """A change of a channel over HTTP that does not say which head it expects."""


class RangeUnsatisfiableError(UsageProblemError):
    """A range outside a blob, or an upload continued where it does not stand; `size` is how many bytes there are."""

    def __init__(self, problem: Problem, size: int) -> None:
        super().__init__(problem)
        self.size = size


class SlowBodyError(UsageProblemError):
    """A request body that stopped arriving, or arrives too slowly to wait for."""


class UnavailableError(ProblemError):
    """A database, store or base that is away or full now; the same call may succeed later."""


class InternalError(ProblemError):
    """A fault of the program itself."""


class ConditionError(ProblemError):
    """Something that is only done when its conditions are accepted by name, and they were not."""


class DecisionError(ProblemError):
    """An admission that does not let the composition proceed; carries the stored decision and its digest."""

    def __init__(self, *problems: Problem, admission: str, decision: JsonObject) -> None:
        super().__init__(*problems)
        self.admission = admission
        self.decision = decision


class DecisionRefusedError(DecisionError, RefusedError):
    """The decision refuses."""


class NotAcknowledgedError(DecisionError):
    """The decision is conditional and the spec does not acknowledge its codes by name."""


def error_document(error: ProblemError) -> JsonObject:
    """An error as JSON: its code, every problem, and what the class carries beside them."""
    document: JsonObject = {
        "code": error.code,
        "errors": [
            {
                "code": problem.code,
                "path": problem.pointer,
                "expected": problem.expected,
                "observed": problem.observed,
                "hint": problem.hint,
            }
            for problem in error.problems
        ],
    }
    if isinstance(error, StaleHeadError):
        document["head"] = f"g{error.head}"
    if isinstance(error, RangeUnsatisfiableError):
        document["size"] = error.size
    if isinstance(error, DecisionError):
        document["admission"] = error.admission
        document["decision"] = error.decision
    return document
