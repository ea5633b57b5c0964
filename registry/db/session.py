"""What repositories work with: a `Reader` over one snapshot, a `Change` over one write transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, SQLColumnExpression, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from registry.db import chain
from registry.db.prepared import Values, insertion, known_keys
from registry.db.rows import AppendOnlyRow, Row
from registry.db.rows.core import table_of
from schemas.canonical import JsonObject

T = TypeVar("T")
BATCH: Final = 400
"""Keys looked up by one statement."""


def utc_now() -> datetime:
    """The present."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds, so that text order is time order."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class Reader:
    """One consistent state of the database. `now` is fixed when the transaction begins."""

    def __init__(self, session: Session, moment: datetime) -> None:
        self.session = session
        self.now = stamp(moment)

    @cached_property
    def connection(self) -> Connection:
        """For prepared statements."""
        return self.session.connection()

    def one(self, statement: Select[T], **values: str) -> T | None:
        """The only result, or None; `values` are those of the statement's named parameters."""
        return self.session.scalars(statement, values).one_or_none()

    def all(self, statement: Select[T]) -> tuple[T, ...]:
        """Every result."""
        return tuple(self.session.scalars(statement))

    def chosen(self, statement: Select[T], column: SQLColumnExpression[Any], keys: Iterable[Any]) -> Iterator[T]:
        """Results whose `column` is one of many keys, looked up in batches."""
        for batch in batches(dict.fromkeys(keys)):
            yield from self.session.scalars(statement.where(column.in_(batch)))

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Read something large that is not soon read again: SQLite keeps none of its pages."""
        yield
        if self.connection.dialect.name == "sqlite":
            self.connection.exec_driver_sql("PRAGMA shrink_memory")

    def known(self, kind: type[Row], keys: Iterable[str]) -> frozenset[str]:
        """Which of these are keys of rows of a table, whose primary key is one column."""
        looked_up = (
            known_keys(table_of(kind), len(batch)).in_order(self.connection, batch)
            for batch in batches(dict.fromkeys(keys))
        )
        return frozenset(row[0] for rows in looked_up for row in rows)


class Change(Reader):
    """One write transaction: everything in it is committed together with its audit event, or not at all."""

    def __init__(self, session: Session, moment: datetime, principal: str) -> None:
        super().__init__(session, moment)
        self.principal = principal
        # the time in front keeps the rows of a change together in every index by change
        self.change_id = f"{int(moment.timestamp() * 1_000_000):014x}{secrets.token_hex(9)}"
        self._written: list[chain.RowMark] = []
        self._subject: str | None = None
        self._detail: JsonObject = {}
        self._noted = False

    def note(self, subject: str | None, detail: JsonObject | None = None) -> None:
        """What the audit event says beside its rows; noting makes an event even where no row was appended."""
        self._subject, self._detail, self._noted = subject, dict(detail or {}), True

    def append(self, *rows: AppendOnlyRow) -> None:
        """Write rows, in the order given; a taken key undoes this run of the change, and it runs again."""
        for row in rows:
            row.change_id = self.change_id
        for kind in dict.fromkeys(type(row) for row in rows):
            self.write(kind, [_values(row) for row in rows if type(row) is kind])

    def write(self, kind: type[AppendOnlyRow], rows: Iterable[Values]) -> None:
        """Write rows of one table, as `append` does; given as values, many cost a fraction of as many objects."""
        insert = insertion(table_of(kind))
        *own, _ = insert.columns  # `change_id` is the last column of all
        cells = [(*[row[name] for name in own], self.change_id) for row in rows]
        if cells:
            insert.each(self.connection, cells)
            self._written.extend(chain.marks(table_of(kind), cells))

    def insert(self, row: Row) -> None:
        """Write a row of a working table; it is not history and has no mark."""
        insertion(table_of(type(row))).each(self.connection, [tuple(_values(row).values())])

    def next(self, column: InstrumentedAttribute[int], *where: ColumnElement[bool]) -> int:
        """One more than the highest number so far, from 1; a unique key over it stands behind the line of changes."""
        return (self.session.scalar(select(func.max(column)).where(*where)) or 0) + 1

    def ensure(self, kind: type[AppendOnlyRow], rows: Iterable[Values]) -> list[Values]:
        """Write those rows whose key is not there yet, and return them."""
        table = table_of(kind)
        columns = table.primary_key.columns.keys()
        keyed = {tuple([row[column] for column in columns]): row for row in rows}
        for batch in batches(list(keyed)):
            cells = [cell for key in batch for cell in key]
            for found in known_keys(table, len(batch)).in_order(self.connection, cells):
                keyed.pop(tuple(found), None)
        self.write(kind, keyed.values())
        return list(keyed.values())

    def seal(self, action: str) -> bool:
        """Append the audit event: the last statement. False when there is nothing to tell."""
        if not self._written and not self._noted:
            return False
        event = chain.Event(self.change_id, action, self.principal, self._subject, self._detail, self.now)
        chain.append(self.connection, event, self._written)
        return True


def _values(row: AppendOnlyRow | Row) -> Values:
    return {column.name: getattr(row, column.name) for column in table_of(type(row)).columns}
