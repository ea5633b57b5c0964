"""Failures are injected, detected by a named check of their owner, and recovered there (R 0x0AH, 0x0B)."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Final

from pydantic import Field

from oracles.checks import Check, equal
from oracles.model import Fixture, Oracle
from oracles.mutation import rejection
from oracles.report import CLAIMS, Report
from oracles.routed.cross_contract import ORACLE as CROSS_CONTRACT
from oracles.routed.cross_contract_replay import UPSTREAM, execute, replayed
from schemas.canonical import JsonValue

FAILURES: Final = "R 0x0AH"

OWNERS: Final[dict[int, Oracle]] = dict(enumerate((*UPSTREAM.values(), CROSS_CONTRACT), start=2))
"""Mechanism loops 2 to 10 and the oracle that owns each."""

CATEGORIES: Final[dict[int, str]] = {
    2: "identity",
    3: "operator",
    4: "training",
    5: "ownership",
    6: "composition",
    7: "continual",
    8: "routing",
    9: "runtime",
    10: "integration",
}


class Fault(Fixture):
    """A controlled fault: one field of a loop's fixture, its wrong value, and the check that must detect it."""

    loop: Annotated[int, Field(ge=2, le=10)]
    field: str
    value: bool | int | float | str
    detector: str


@cache
def owner_report(loop: int) -> Report:
    """The report of the untouched owner."""
    owner = OWNERS[loop]
    return replayed(owner.name)[0] if owner.name in UPSTREAM else execute(owner)


def injected(document: JsonValue, path: tuple[str, ...], value: JsonValue) -> JsonValue | None:
    """The document with the value put at the path; None where the path leads nowhere."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(document, dict) and step in document:
        inner = injected(document[step], rest, value)
        return None if inner is None else {**document, step: inner}
    if isinstance(document, list) and step.isdigit() and int(step) < len(document):
        inner = injected(document[int(step)], rest, value)
        return None if inner is None else [inner if i == int(step) else x for i, x in enumerate(document)]
    return None


@cache
def detection(loop: int, field: str, encoded: str) -> str | None:
    """What rejects the owner's fixture with the fault in it: a check, `contract`, or nothing."""
    owner = OWNERS[loop]
    document = injected(json.loads(owner.fixture_bytes()), tuple(field.split("/")[1:]), json.loads(encoded))
    return None if document is None else rejection(owner, document)


def record(fault: Fault) -> dict[str, str | None]:
    """The ten coordinates of one failure; what can be found by execution is."""
    owner, report = OWNERS[fault.loop], owner_report(fault.loop)
    invariant = next((c.source for c in report.checks if c.name == fault.detector), None)
    found = detection(fault.loop, fault.field, json.dumps(fault.value))
    return {
        "loop": str(fault.loop),
        "category": CATEGORIES[fault.loop],
        "invariant": invariant,
        "fault": f"{fault.field} = {fault.value}",
        "detector": found,
        "consequence": None if found is None else "release is blocked",
        "owner": owner.name,
        "test": f"test_oracle_{owner.name}",
        "gate": f"{fault.detector} holds on the restored fixture",
        "limit": owner.does_not_prove[0],
    }


def recovered(*, restored: bool, test_passes: bool, ceiling_unchanged: bool) -> bool:
    """R_f: all three, or the failure still blocks the release."""
    return restored and test_passes and ceiling_unchanged


def recovery(fault: Fault) -> bool:
    """Whether the owner's untouched fixture holds the detector, passes whole, and claims nothing more."""
    report = owner_report(fault.loop)
    document = report.document()
    return recovered(
        restored=any(c.name == fault.detector and c.passed for c in report.checks),
        test_passes=report.passed,
        ceiling_unchanged=document["claims"] == dict.fromkeys(CLAIMS, False),
    )


def failure_checks(faults: tuple[Fault, ...]) -> Iterator[Check]:
    """Four failures for each of nine loops: each is injected, named by its detector, and recovers."""
    loops = tuple(fault.loop for fault in faults)
    yield equal("failures", len(faults), 36, source=FAILURES)
    yield equal("four failures a loop", loops, tuple(loop for loop in OWNERS for _ in range(4)), source=FAILURES)
    predicate = tuple(
        recovered(restored=a, test_passes=b, ceiling_unchanged=c)
        for a in (True, False)
        for b in (True, False)
        for c in (True, False)
    )
    yield equal("recovery needs all three", predicate, (True, *(False,) * 7), source=FAILURES)
    for loop, owner in OWNERS.items():
        records = tuple(record(fault) for fault in faults if fault.loop == loop)
        detected = tuple(r["detector"] for r in records)
        expected = tuple(fault.detector for fault in faults if fault.loop == loop)
        yield equal(f"faults of {owner.name} are detected", detected, expected, source=FAILURES)
        complete = tuple(len(r) - list(r.values()).count(None) for r in records)
        yield equal(f"coordinates of {owner.name}", complete, (10,) * 4, source=FAILURES)
    yield equal("failures recovered by their owner", sum(map(recovery, faults)), 36, source=FAILURES)
