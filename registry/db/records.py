"""Measurements and run records: what a computation measured, beside the manifest and outside its identity."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select

from registry.db.prepared import Prepared
from registry.db.rows import MeasurementRow, RunRecordRow
from registry.db.rows.core import parsed
from registry.db.session import Change, Reader
from schemas.canonical import JsonObject, canonical_bytes
from schemas.digests import Digest

_Kind = type[MeasurementRow] | type[RunRecordRow]
_BODIES: Final = {
    kind: Prepared(select(kind.body_json).where(kind.subject == bindparam("subject")).order_by(kind.sequence))
    for kind in (MeasurementRow, RunRecordRow)
}


def put_measurement(change: Change, subject: Digest, body: JsonObject) -> None:
    """Append the floating figures of one computation."""
    _put(change, MeasurementRow, subject, body)


def measurements(reader: Reader, subject: Digest) -> tuple[JsonObject, ...]:
    """Every measurement of a manifest, oldest first."""
    return _bodies(reader, MeasurementRow, subject)


def put_run_record(change: Change, subject: Digest, body: JsonObject) -> None:
    """Append seconds, memory, device and release of one run."""
    _put(change, RunRecordRow, subject, body)


def run_records(reader: Reader, subject: Digest) -> tuple[JsonObject, ...]:
    """Every run record of a manifest, oldest first."""
    return _bodies(reader, RunRecordRow, subject)


def _put(change: Change, kind: _Kind, subject: Digest, body: JsonObject) -> None:
    sequence = change.next(kind.sequence, kind.subject == subject)
    text = canonical_bytes(body).decode()
    change.append(kind(subject=subject, sequence=sequence, body_json=text, created=change.now))


def _bodies(reader: Reader, kind: _Kind, subject: Digest) -> tuple[JsonObject, ...]:
    return tuple(parsed(row[0]) for row in _BODIES[kind].all(reader.connection, subject=subject))
