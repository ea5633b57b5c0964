"""What is known about one code: where it belongs, what it breaks and how to repair it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas.decision import CONDITIONAL, REFUSING, Component, Coordinate, Severity, Status

Owner = Literal["spec", "adapter", "base", "registry"]


@dataclass(frozen=True)
class CodeRecord:
    """One code.

    `status` is what its coordinate of the vector becomes; `owner` is who repairs it: the author of the spec or of the
    adapter, who registers the base, or the registry itself; `failure` is the record of the failure catalogue that the
    code detects.
    """

    code: str
    predicate: Component
    coordinate: Coordinate
    status: Status
    owner: Owner
    invariant: str
    consequence: str
    recovery: str
    failure: str

    @property
    def severity(self) -> Severity:
        """What the status means for the outcome."""
        if self.status in REFUSING:
            return "refuse"
        return "condition" if self.status in CONDITIONAL else "note"
