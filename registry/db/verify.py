"""`registry verify` over the database: every row of every append-only table against the audit chain.

Two streams meet, both ordered by change: the events with the marks they carry, and the rows of all tables. What differs
is named by table, key and change. Memory is bounded by the largest single change.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal

from sqlalchemy import Connection, Executable, Table, select, type_coerce
from sqlalchemy.types import NullType

from registry.db import chain, guards
from registry.db.rows import AuditEventRow
from registry.db.rows.core import table_of
from registry.db.session import Reader, batches

FaultCode = Literal[
    "ROW_EDITED", "ROW_MISSING", "ROW_INSERTED", "EVENT_MISSING", "EVENT_EDITED", "EVENT_REWRITTEN", "HEAD_MISSING"
]
BLOCK: Final = 1000
"""Rows fetched at a time."""
_EVENT: Final = table_of(AuditEventRow)


@dataclass(frozen=True)
class AuditFault:
    """One thing that is not as it was written.

    `table` and `key` (JSON array) name the row, `change` the change it belongs to, where known.
    """

    code: FaultCode
    table: str
    key: str
    change: str | None
    expected: str
    observed: str


_Change = str | bytes
"""A change as the database keeps it: SQLite takes bytes, which only tampering writes, and sorts them behind text."""


@dataclass(frozen=True)
class _Rows:
    """The rows found for one change: table, key, digest."""

    change: _Change
    marks: list[chain.RowMark]


@dataclass(frozen=True)
class _Marks:
    """What one event says about the rows of its change; `marks` is None when they were edited."""

    change: _Change
    sequence: int
    marks: list[chain.RowMark] | None


def verify_audit(reader: Reader, expect_head: str | None = None) -> tuple[AuditFault, ...]:
    """Everything that was edited, removed or inserted behind the registry's back.

    `expect_head` is the hash of an event noted elsewhere earlier: a history without it was rewritten or cut short.
    """
    return tuple(iterate_faults(reader, expect_head))


def iterate_faults(reader: Reader, expect_head: str | None = None) -> Iterator[AuditFault]:
    """The faults as they are found: first the chain itself, then the rows."""
    connection = reader.session.connection()
    edited = set()
    for fault in _chain_faults(connection, expect_head):
        edited.add(fault.key if fault.code == "EVENT_EDITED" else "")
        yield fault
    for fault in _row_faults(_events(connection), _found(connection)):
        if fault.code != "EVENT_EDITED" or fault.key not in edited:
            yield fault


def _chain_faults(connection: Connection, expect_head: str | None) -> Iterator[AuditFault]:
    """Gaps, edits and broken links. A link blames the event it points to, unless the event it comes from was edited."""
    before: AuditEventRow | None = None
    met = expect_head is None
    for event in _chain(connection):
        met = met or event.hash == expect_head
        if not _is_number(event.sequence):
            yield _event_fault("EVENT_EDITED", event.sequence, event.change_id, "a number", repr(event.sequence))
            continue
        following = before.sequence + 1 if before else 1
        whole = chain.event_hash(event)
        if event.sequence > following:
            yield _event_fault(
                "EVENT_MISSING", following, None, f"events {following} to {event.sequence - 1}", "nothing"
            )
        if whole != event.hash:
            yield _event_fault("EVENT_EDITED", event.sequence, event.change_id, event.hash, whole)
        elif event.sequence == following and not _follows(event, before):
            number, change = (
                (event.sequence, event.change_id) if before is None else (before.sequence, before.change_id)
            )
            yield _event_fault(
                "EVENT_REWRITTEN", number, change, str(event.previous), before.hash if before else "null"
            )
        before = event
    if not met:
        last = "no event" if before is None else f"{before.hash} after {before.sequence} events"
        yield AuditFault("HEAD_MISSING", _EVENT.name, "[]", None, str(expect_head), last)


def _is_number(cell: object) -> bool:
    """Whether a cell is what its column says: SQLite keeps what it is given."""
    return isinstance(cell, int)


def _follows(event: AuditEventRow, before: AuditEventRow | None) -> bool:
    """Whether an event links to the one before it, as that is or (when only its hash cell was edited) as it was."""
    if before is None:
        return event.previous is None
    return event.previous in (before.hash, chain.event_hash(before))


def _row_faults(events: Iterator[_Marks], found: Iterator[_Rows]) -> Iterator[AuditFault]:
    streams: tuple[Iterator[_Marks | _Rows], ...] = (events, found)
    merged = heapq.merge(*streams, key=lambda item: _in_order(item.change))
    for cell, group in groupby(merged, key=lambda item: item.change):
        change, items = str(cell), list(group)
        event = next((item for item in items if isinstance(item, _Marks)), None)
        rows = [mark for item in items if isinstance(item, _Rows) for mark in item.marks]
        if event is None:
            table, key, _ = rows[0]
            others = f"a change of {len(rows)} rows that no event names"
            yield AuditFault("EVENT_MISSING", table, key, change, "an audit event", others)
        elif event.marks is None:
            yield _event_fault("EVENT_EDITED", event.sequence, change, "the marks its digest covers", "others")
        else:
            yield from _compare(change, event.marks, rows)


def _compare(change: str, told: list[chain.RowMark], found: list[chain.RowMark]) -> Iterator[AuditFault]:
    wanted = {(table, key): digest for table, key, digest in told}
    for table, key, digest in found:
        expected = wanted.pop((table, key), None)
        if expected is None:
            yield AuditFault("ROW_INSERTED", table, key, change, "no such row", digest)
        elif expected != digest:
            yield AuditFault("ROW_EDITED", table, key, change, expected, digest)
    for (table, key), expected in wanted.items():
        yield AuditFault("ROW_MISSING", table, key, change, expected, "nothing")


def _chain(connection: Connection) -> Iterator[AuditEventRow]:
    columns = [column for column in _EVENT.columns if column.name != "rows_json"]
    for row in _stream(connection, select(*columns).order_by(_EVENT.c.sequence)):
        yield AuditEventRow(rows_json="", **dict(zip((column.name for column in columns), row, strict=True)))


def _events(connection: Connection) -> Iterator[_Marks]:
    statement = select(_EVENT.c.change_id, _EVENT.c.sequence, _EVENT.c.rows_json, _EVENT.c.rows_digest).order_by(
        _EVENT.c.change_id
    )
    for change, sequence, text, digest in _stream(connection, statement):
        intact = chain.rows_digest(text) == digest
        yield _Marks(change, sequence, [tuple(mark) for mark in json.loads(text)] if intact else None)


def _found(connection: Connection) -> Iterator[_Rows]:
    streams = [_table_marks(connection, table) for table in guards.guarded_tables() if table is not _EVENT]
    merged = heapq.merge(*streams, key=lambda item: _in_order(item[0]))
    for change, group in groupby(merged, key=itemgetter(0)):
        yield _Rows(change, [mark for _, mark in group])


def _in_order(change: _Change) -> tuple[bool, _Change]:
    return isinstance(change, bytes), change


def _table_marks(connection: Connection, table: Table) -> Iterator[tuple[_Change, chain.RowMark]]:
    # raw cells: what the driver gives, whatever a tampered cell has become
    cells = [type_coerce(column, NullType()) for column in table.columns]
    place = [column.name for column in table.columns].index("change_id")
    for rows in batches(_stream(connection, select(*cells).order_by(table.c.change_id)), BLOCK):
        for row, mark in zip(rows, chain.marks(table, rows), strict=True):
            yield row[place], mark


def _stream(connection: Connection, statement: Executable) -> Iterator[Any]:
    streaming = {"stream_results": True, "yield_per": BLOCK}
    yield from connection.execute(statement, execution_options=streaming)


def _event_fault(code: FaultCode, number: int, change: str | None, expected: str, observed: str) -> AuditFault:
    return AuditFault(code, _EVENT.name, json.dumps([number], default=repr), change, expected, observed)
