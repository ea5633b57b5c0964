"""Error classes of the service: a stable code and typed problems; no HTTP, no exit codes, no matching on English.

The classes of `schemas.errors` (usage, refused, digest mismatch) belong to the same family, used as they are.
"""

from __future__ import annotations

from schemas.errors import DigestMismatchError, Problem, ProblemError, RefusedError, UsageProblemError

__all__ = [
    "ConflictError",
    "DecisionRefusedError",
    "DigestMismatchError",
    "InternalError",
    "NotAcknowledgedError",
    "NotAllowedError",
    "NotFoundError",
    "Problem",
    "ProblemError",
    "PurgedError",
    "RefusedError",
    "StaleHeadError",
    "UnavailableError",
    "UsageProblemError",
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


class UnavailableError(ProblemError):
    """A database, store or base that is away or full now; the same call may succeed later."""


class InternalError(ProblemError):
    """A fault of the program itself."""


class DecisionRefusedError(RefusedError):
    """An admission that refuses; `admission` is the digest of the stored decision."""

    def __init__(self, *problems: Problem, admission: str) -> None:
        super().__init__(*problems)
        self.admission = admission


class NotAcknowledgedError(ProblemError):
    """A conditional decision whose codes the spec does not acknowledge by name."""

    def __init__(self, *problems: Problem, admission: str) -> None:
        super().__init__(*problems)
        self.admission = admission
