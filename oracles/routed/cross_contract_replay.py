"""Replay before composition: rebuild every upstream report and hold four byte digests of it (R 0x09B).

Input beyond the own fixture: the shipped fixtures and programs of the eight oracles that are composed.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from oracles.checks import Value
from oracles.model import Oracle
from oracles.report import Report, build
from oracles.routed.adapter_identity import ORACLE as ADAPTER_IDENTITY
from oracles.routed.composition_merge import ORACLE as COMPOSITION_MERGE
from oracles.routed.continual_state import ORACLE as CONTINUAL_STATE
from oracles.routed.method_training import ORACLE as METHOD_TRAINING
from oracles.routed.routed_operator import ORACLE as ROUTED_OPERATOR
from oracles.routed.routing_granularity import ORACLE as ROUTING_GRANULARITY
from oracles.routed.runtime_execution import ORACLE as RUNTIME_EXECUTION
from oracles.routed.shared_factor import ORACLE as SHARED_FACTOR
from schemas.canonical import canonical_bytes, parse_json
from schemas.digests import Digest, blob_digest

UPSTREAM: Final[Mapping[str, Oracle]] = {
    oracle.name: oracle
    for oracle in (
        ADAPTER_IDENTITY,
        ROUTED_OPERATOR,
        METHOD_TRAINING,
        SHARED_FACTOR,
        COMPOSITION_MERGE,
        CONTINUAL_STATE,
        ROUTING_GRANULARITY,
        RUNTIME_EXECUTION,
    )
}
"""Loops 2 to 9, in order."""


class Replayed(NamedTuple):
    """The four files of a loop: fixture, program, report and contract."""

    fixture: Digest
    program: Digest
    report: Digest
    contract: Digest


def contract_bytes(oracle: Oracle) -> bytes:
    """What the oracle says it proves and does not prove."""
    return canonical_bytes(
        {
            "oracle": oracle.name,
            "sections": list(oracle.sections),
            "proves": list(oracle.proves),
            "does_not_prove": list(oracle.does_not_prove),
        }
    )


def execute(oracle: Oracle) -> Report:
    """P = O(F), from the shipped bytes."""
    fixture = oracle.fixture_bytes()
    return build(oracle, oracle.checks(fixture), fixture, 0.0)


@cache
def replayed(name: str) -> tuple[Report, Replayed]:
    """The report of one upstream oracle with the digests of its four files."""
    report = execute(UPSTREAM[name])
    contract = blob_digest(contract_bytes(report.oracle))
    return report, Replayed(report.fixture, report.program, report.digest(), contract)


@cache
def reproduces(name: str) -> bool:
    """Whether a second execution gives the same report bytes."""
    return execute(UPSTREAM[name]).digest() == replayed(name)[1].report


@cache
def drift_keeps_meaning(name: str) -> bool:
    """Whether a report written with other separators has another file digest and the same content."""
    report, held = replayed(name)
    rewritten = json.dumps(report.document(), indent=1).encode()
    return blob_digest(rewritten) != held.report and canonical_bytes(parse_json(rewritten)) == report.to_bytes()


def admits(held: Replayed, found: Replayed) -> bool:
    """Composition admits a loop only when all four digests are the held ones."""
    return held == found


def value_of(name: str, check: str) -> Value:
    """The value of one upstream check; None when no loop or no check is called that."""
    if name not in UPSTREAM:
        return None
    return next((c.value for c in replayed(name)[0].checks if c.name == check), None)
