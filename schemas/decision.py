"""What a validator says: findings, the compatibility vector, the predicates and the outcome."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from schemas.digests import Digest
from schemas.model import Identifier, Key, Record

Severity = Literal["refuse", "condition", "note"]
Outcome = Literal["admitted", "conditional", "refused"]
Component = Literal["B", "M", "T", "F", "C", "S", "R", "E", "K"]
Coordinate = Literal["algebra", "config", "forward", "backward", "artifact", "merge", "runtime", "evidence"]
Status = Literal[
    "pass",
    "conditional",
    "shadowed",
    "accepted_but_shadowed",
    "unverified",
    "rejected",
    "conflict",
    "missing_derivation",
]
PredicateStatus = Literal["pass", "conditional", "fail", "none"]
Code = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{2,63}$")]

COMPONENTS: Final[tuple[Component, ...]] = ("B", "M", "T", "F", "C", "S", "R", "E", "K")
COORDINATES: Final[tuple[Coordinate, ...]] = (
    "algebra", "config", "forward", "backward", "artifact", "merge", "runtime", "evidence",
)  # fmt: skip
REFUSING: Final[frozenset[Status]] = frozenset({"rejected", "conflict", "missing_derivation"})
CONDITIONAL: Final[frozenset[Status]] = frozenset({"conditional", "shadowed", "accepted_but_shadowed", "unverified"})


class Finding(Record):
    """One thing a rule saw. Values only: why, recovery and owner come from the failure catalogue under `code`.

    `subject` names what it is about (a digest or a member position), `path` leads to the field.
    """

    code: Code
    predicate: Component
    coordinate: Coordinate
    severity: Severity
    subject: Identifier
    path: tuple[str | int, ...]
    expected: str
    observed: str


class CoordinateStatus(Record):
    """One coordinate of the vector, the rule that set it and the grade of its evidence."""

    status: Status
    reason: Key
    evidence: Literal["derived", "executed", "source_reported", "not_verified"]


class Vector(Record):
    """The compatibility vector: eight statuses, never one word."""

    algebra: CoordinateStatus
    config: CoordinateStatus
    forward: CoordinateStatus
    backward: CoordinateStatus
    artifact: CoordinateStatus
    merge: CoordinateStatus
    runtime: CoordinateStatus
    evidence: CoordinateStatus


class Predicates(Record):
    """``legal(C) = P_B and P_M and ... and P_K``; `none` only where the lane does not own the component."""

    B: PredicateStatus
    M: PredicateStatus
    T: PredicateStatus
    F: PredicateStatus
    C: PredicateStatus
    S: PredicateStatus
    R: PredicateStatus
    E: PredicateStatus
    K: PredicateStatus


class Decision(Record):
    """The complete answer to one spec: everything that is wrong, in a fixed order.

    `inputs` digests what was decided on, so the same question has the same answer.
    """

    outcome: Outcome
    vector: Vector
    predicates: Predicates
    findings: tuple[Finding, ...] = Field(default=())
    inputs: Digest

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """Findings that refuse."""
        return tuple(finding for finding in self.findings if finding.severity == "refuse")
