"""The audit chain: one event a change, each naming the event before it and every row its change wrote.

A row is marked by its table, its key and the digest of all its cells. The event carries the marks and their digest; the
event's own hash covers that digest and the previous hash, so one head vouches for everything before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

from blake3 import blake3
from sqlalchemy import Connection, Table, func, select

from registry.db.prepared import Cell, Prepared, insertion
from registry.db.rows import AuditEventRow
from registry.db.rows.core import table_of
from schemas.canonical import JsonObject, canonical_bytes
from schemas.digests import PREFIX

ROW_CONTEXT: Final = "adapter-registry v1 audit row"
ROWS_CONTEXT: Final = "adapter-registry v1 audit rows"
EVENT_CONTEXT: Final = "adapter-registry v1 audit event"
CHAIN_LOCK: Final = 0x6164_6170_7465_7221
"""Key of the advisory lock that a change on PostgreSQL begins with; SQLite begins with its one write lock anyway."""

SILENT_S: Final = 120
"""How long a change may hold the lock without a word to the database, in seconds: a process that is stopped in the
middle of one must not stop all the others for good."""

_LOCK: Final = Prepared(
    select(
        func.set_config("idle_in_transaction_session_timeout", f"{SILENT_S}s", True),
        func.pg_advisory_xact_lock(CHAIN_LOCK),
    )
)
_HEAD: Final = Prepared(
    select(AuditEventRow.sequence, AuditEventRow.hash).order_by(AuditEventRow.sequence.desc()).limit(1)
)

# a tampered key may hold what JSON has no word for, and must still be named
_array: Final = json.JSONEncoder(separators=(",", ":"), default=repr).encode
_QUOTED: Final[dict[type, Callable[[Any], str]]] = {str: json.encoder.encode_basestring_ascii, int: repr}

RowMark = tuple[str, str, str]
"""Table, key (JSON array of the key cells), digest of the row."""


@dataclass(frozen=True)
class Event:
    """What a change says about itself."""

    change_id: str
    action: str
    principal: str
    subject: str | None
    detail: JsonObject
    created: str


@dataclass(frozen=True)
class AuditHead:
    """The newest event: everything before it follows from its hash."""

    sequence: int
    hash: str


def marks(table: Table, rows: Sequence[Sequence[Any]]) -> list[RowMark]:
    """The marks of rows, one at least, given as their cells in column order."""
    begun = blake3(_cell(table.name), derive_key_context=ROW_CONTEXT)
    # column by column: nearly always all cells of one are of one type
    columns = [
        (column.primary_key, cells) for column, cells in zip(table.columns, zip(*rows, strict=True), strict=True)
    ]
    known = {str: _Cells(), int: _Cells()}
    written = zip(*[_written(cells, known) for _, cells in columns], strict=True)
    keys = zip(*[_quoted(cells) for of_key, cells in columns if of_key], strict=True)
    found = []
    for key, row in zip(keys, written, strict=True):
        hasher = begun.copy()
        hasher.update(b"".join(row))
        found.append((table.name, f"[{','.join(key)}]", hasher.hexdigest()))
    return found


def marks_json(marks: Sequence[RowMark]) -> str:
    """The marks of a change as the event stores them: sorted, so that the order of writing does not matter."""
    return _array(sorted(marks))


def rows_digest(text: str) -> str:
    """Digest of an event's marks."""
    return PREFIX + blake3(_utf8(text), derive_key_context=ROWS_CONTEXT).hexdigest()


def event_hash(event: AuditEventRow) -> str:
    """The hash of an event over its own fields and the previous hash."""
    document: JsonObject = {
        "sequence": event.sequence,
        "change_id": event.change_id,
        "action": event.action,
        "principal": event.principal,
        "subject": event.subject,
        "detail": event.detail_json,
        "created": event.created,
        "rows": event.rows_digest,
        "previous": event.previous,
    }
    return PREFIX + blake3(_event_bytes(document), derive_key_context=EVENT_CONTEXT).hexdigest()


def head(connection: Connection) -> AuditHead | None:
    """The newest event; None before the first."""
    found = _HEAD.first(connection)
    return None if found is None else AuditHead(found[0], found[1])


def stand_in_line(connection: Connection) -> None:
    """Wait for the one lock, which PostgreSQL gives in the order it was asked for, and keep it until the commit.

    The chain is global, so changes come one after another in any case. Waiting before it reads anything, each decides
    on what the one before it left: it loses no race, however many want the same, and two cannot wait for each other.
    The database ends the session of one that is silent for too long, which then counts as a lost connection.
    """
    if connection.dialect.name == "postgresql":
        _LOCK.all(connection)


def append(connection: Connection, event: Event, marks: Sequence[RowMark]) -> None:
    """Append an event to the chain, as the last statement of a transaction that stood in line."""
    before = head(connection)
    text = marks_json(marks)
    row = AuditEventRow(
        sequence=1 if before is None else before.sequence + 1,
        change_id=event.change_id,
        action=event.action,
        principal=event.principal,
        subject=event.subject,
        detail_json=canonical_bytes(event.detail).decode(),
        created=event.created,
        rows_json=text,
        rows_digest=rows_digest(text),
        previous=None if before is None else before.hash,
        hash="",
    )
    row.hash = event_hash(row)
    insert = insertion(table_of(AuditEventRow))
    insert.each(connection, [tuple(getattr(row, name) for name in insert.columns)])


def _event_bytes(document: JsonObject) -> bytes:
    # not JCS: a tampered cell may hold what JCS refuses, and must still hash to something
    return json.dumps(document, sort_keys=True, separators=(",", ":"), default=repr).encode("ascii")


def _utf8(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _type_of(cells: Sequence[Any]) -> type:
    """The one type of cells; that of nothing where they have several."""
    first, *others = set(map(type, cells))
    return NoneType if others else first


def _quoted(cells: Sequence[Any]) -> Iterable[str]:
    """Cells of a key as JSON: what the encoder writes, at a third of its price for text and integers."""
    return map(_QUOTED.get(_type_of(cells), _array), cells)


def _written(cells: Sequence[Any], known: Mapping[type, _Cells]) -> Iterable[bytes]:
    """Cells as bytes."""
    kept = known.get(_type_of(cells))
    return map(_cell if kept is None else kept.__getitem__, cells)


class _Cells(dict[Cell | float, bytes]):
    """Cells of one type as bytes, each written once: the rows of a change name the same things again and again."""

    def __missing__(self, cell: Cell | float) -> bytes:
        data = self[cell] = _cell(cell)
        return data


def _cell(value: Cell | float) -> bytes:
    """A cell as bytes, such that no two lists of cells read alike."""
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return b"s%d:%b" % (len(data), data)
    if value is None:
        return b"n"
    if isinstance(value, bytes):
        return b"b%d:%b" % (len(value), value)
    data = repr(value).encode()
    return b"i%d:%b" % (len(data), data)
