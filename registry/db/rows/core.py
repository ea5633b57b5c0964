"""What all tables share: types that mean the same on both databases, constraint names, and the two kinds of rows.

Text compares bytewise on both databases (PostgreSQL: collation "C"), so that key ranges and orders agree. Times are
text, ISO 8601 in UTC with microseconds and `Z`. JSON is text in canonical form. There are no floats and no booleans.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from sqlalchemy import BigInteger, Dialect, LargeBinary, MetaData, String, Table, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

from schemas.canonical import JsonObject

NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
BYTEWISE: Final = String().with_variant(String(collation="C"), "postgresql")


Cell = bytes | memoryview | str | None


class ExactBytes(LargeBinary):
    """Bytes as stored; a cell turned into text behind our back still reads, so that its digest can accuse it."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Cell], bytes | None]:  # noqa: ARG002 - SQLAlchemy calls it so
        """Bytes from whatever the driver gives."""
        return lambda value: None if value is None else as_bytes(value)


def as_bytes(value: object) -> bytes:
    """Bytes from whatever the driver gives: of a damaged cell that may be text or a number."""
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    return str(value).encode("utf-8", "surrogateescape")


class Row(MappedAsDataclass, DeclarativeBase, kw_only=True):
    """A row of any table."""

    metadata = MetaData(naming_convention=NAMES)
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: BYTEWISE, int: BigInteger, bytes: ExactBytes}


class AppendOnlyRow(MappedAsDataclass, kw_only=True):
    """A row that is written once; `change_id` names the change (and so the audit event) that wrote it."""

    change_id: Mapped[str] = mapped_column(init=False, default="", index=True, sort_order=1000)


class AuditEventRow(Row):
    """One link of the audit chain: who did what, the digest of every row it wrote, and the link before it."""

    __tablename__ = "audit_event"
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    change_id: Mapped[str] = mapped_column(unique=True)
    action: Mapped[str]
    principal: Mapped[str]
    subject: Mapped[str | None]
    detail_json: Mapped[str]
    created: Mapped[str]
    rows_json: Mapped[str]
    rows_digest: Mapped[str]
    previous: Mapped[str | None]
    hash: Mapped[str]

    @property
    def detail(self) -> JsonObject:
        """What the change said about itself."""
        return parsed(self.detail_json)


def parsed(text: str) -> JsonObject:
    """The value of a JSON object column."""
    return cast(JsonObject, json.loads(text))


def table_of(row: type[Any]) -> Table:
    """The table of a row class."""
    return cast(Table, row.__table__)


def unique_keys(table: Table) -> dict[str, tuple[str, ...]]:
    """Each unique key of a table by constraint name, the primary key first."""
    found = {str(table.primary_key.name): tuple(column.name for column in table.primary_key.columns)}
    uniques = [item for item in table.constraints if isinstance(item, UniqueConstraint)]
    for item in sorted(uniques, key=lambda item: str(item.name)):
        found[str(item.name)] = tuple(column.name for column in item.columns)
    return found
