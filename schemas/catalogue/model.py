"""What a failure record holds (V 0x0BA, C 0x0BA, R 0x0AH)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from schemas.canonical import JsonValue
from schemas.model import Identifier, Key, Record

Family = Literal["variants", "conditional", "routed", "registry"]
Owner = Literal[
    "admission",
    "allocator and checkpoint",
    "base",
    "cache runtime",
    "composition",
    "configuration",
    "continual state",
    "evaluation",
    "export and release",
    "factor ownership",
    "identity",
    "initialization and conversion",
    "measurement",
    "operator",
    "operator and cache",
    "operator and positions",
    "optimizer",
    "release gate",
    "routing",
    "runtime",
    "source gate",
    "spec",
    "training",
]
Coordinate = Literal["invariant", "fault", "detector", "consequence", "owner", "recovery"]
"""The coordinates a document may give; identity, test, gate and limit are always ours."""

Sentence = Annotated[str, StringConstraints(min_length=8, max_length=400, pattern=r"^[A-Z0-9].*[.]$")]
Section = Annotated[str, StringConstraints(pattern=r"^([VCR] 0x[0-9A-F]{2,3}[A-Z]{0,2}|ours)$")]
Pointer = Annotated[str, StringConstraints(pattern=r"^(/[^/]+)+$")]

OWN: Final = "ours"
"""The section of a record that no document has."""


class Injection(Record):
    """The controlled fault as one substituted field of an oracle's fixture."""

    field: Pointer
    value: JsonValue


class Failure(Record):
    """One failure.

    `detector` is the check of `oracle` that notices the fault (`contract` for the fixture's types), or the finding code
    when no oracle is named. Without an `inject` that check, or the rule behind the code, executes the faulty operator
    itself. `test` proves the recovery; `gate` says what stays closed until then, `limit` what stays unproven after it.
    `documented` names the coordinates that `source` gives; the others are ours.
    """

    id: Key
    family: Family
    source: Section
    documented: tuple[Coordinate, ...]
    invariant: Sentence
    fault: Sentence
    oracle: Key | None
    inject: Injection | None
    detector: Identifier
    consequence: Sentence
    owner: Owner
    recovery: Sentence
    test: Identifier
    gate: Sentence
    limit: Sentence


class Entry(Record):
    """One failure as its family's file writes it."""

    id: Key
    source: Section
    invariant: Sentence
    fault: Sentence
    inject: Injection | None = None
    detector: Identifier
    consequence: Sentence
    owner: Owner
    recovery: Sentence
    gate: Sentence


class Group(Record):
    """Failures that one oracle, or the registry's own rules, detect: what all of them share is written once."""

    oracle: Key | None
    test: Identifier
    limit: Sentence
    failures: Annotated[tuple[Entry, ...], Field(min_length=1)]


class FamilyFile(Record):
    """One file of the catalogue; `documented` says which coordinates each section of the document gives."""

    documented: dict[Section, tuple[Coordinate, ...]]
    groups: tuple[Group, ...]
