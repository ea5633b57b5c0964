"""Replay: the same fixture and program must give the same report again.

`replays.json` locks four digests an oracle: fixture, program, report (its bytes on the machine that locked it) and
semantic. Fixture, program and semantic must match everywhere. Report bytes carry measured errors, so another machine
may write other bytes; a report file is genuine when its bytes are those of the lock or those computed here.
"""

from dataclasses import dataclass
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, TypeAdapter

from oracles.errors import OracleDriftError
from oracles.report import Report
from oracles.runner import run
from schemas.digests import Digest, blob_digest

LOCK_FILE = "replays.json"


class Binding(BaseModel):
    """The four digests of one replay."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    fixture: Digest
    program: Digest
    report: Digest
    semantic: Digest


Lock = dict[str, Binding]
LOCK = TypeAdapter(Lock)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A replay that agrees with its lock; `same_bytes` tells whether even the report's bytes are the locked ones."""

    report: Report
    binding: Binding
    same_bytes: bool


def read_lock() -> Lock:
    """The committed bindings by oracle name."""
    return LOCK.validate_json(files("oracles").joinpath(LOCK_FILE).read_bytes())


def bind(report: Report) -> Binding:
    """The four digests of a report."""
    return Binding(fixture=report.fixture, program=report.program, report=report.digest(), semantic=report.semantic())


def changed(expected: Binding | None, found: Binding) -> tuple[str, ...]:
    """Which of fixture, program and semantic differ; `lock` when the oracle was never locked."""
    if expected is None:
        return ("lock",)
    parts = (
        ("fixture", expected.fixture, found.fixture),
        ("program", expected.program, found.program),
        ("semantic", expected.semantic, found.semantic),
    )
    return tuple(name for name, locked, now in parts if locked != now)


def replay(name: str, *, lock: Lock | None = None, report_file: bytes | None = None) -> Replay:
    """Run the oracle again and hold it, and a report file if one is given, against the lock.

    Raises:
        OracleDriftError: naming which of fixture, program, semantic and report changed.
    """
    expected = (read_lock() if lock is None else lock).get(name)
    report = run(name)
    found = bind(report)
    different = changed(expected, found)
    if report_file is not None and not _genuine(report_file, expected, found):
        different += ("report",)
    if different or expected is None:
        raise OracleDriftError(name, different)
    return Replay(report=report, binding=found, same_bytes=found.report == expected.report)


def _genuine(report_file: bytes, expected: Binding | None, found: Binding) -> bool:
    locked = set() if expected is None else {expected.report}
    return blob_digest(report_file) in locked | {found.report}
