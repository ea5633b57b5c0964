"""Aliases: movable names for versions. Every move is kept; the newest is current."""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import aliased

from registry.db import names, paging
from registry.db.paging import Page
from registry.db.problems import found
from registry.db.rows import AliasEventRow
from registry.db.session import Change, Reader


def move(change: Change, name: str, alias: str, version: int) -> AliasEventRow:
    """Point an alias at a version. Raises what `names.at` raises."""
    names.at(change, name, version)
    sequence = change.next(AliasEventRow.sequence, *_mine(name, alias))
    row = AliasEventRow(name=name, alias=alias, sequence=sequence, version=version, created=change.now)
    change.append(row)
    return row


def current(reader: Reader, name: str, alias: str) -> AliasEventRow:
    """Where an alias points. Raises NotFoundError `ALIAS_UNKNOWN`."""
    newest = select(AliasEventRow).where(*_mine(name, alias)).order_by(AliasEventRow.sequence.desc()).limit(1)
    hint = f"Set it with `registry alias {name}@VERSION {alias}`."
    return found(reader.one(newest), "ALIAS_UNKNOWN", f"{name}@{alias}", hint)


def all_current(reader: Reader, name: str) -> tuple[AliasEventRow, ...]:
    """Where every alias of a name points, by alias."""
    newer = aliased(AliasEventRow)
    replaced = exists().where(
        newer.name == AliasEventRow.name, newer.alias == AliasEventRow.alias, newer.sequence > AliasEventRow.sequence
    )
    mine = select(AliasEventRow).where(AliasEventRow.name == name, ~replaced)
    return reader.all(mine.order_by(AliasEventRow.alias))


def history(reader: Reader, name: str, alias: str, after: str | None = None, limit: int = 50) -> Page[AliasEventRow]:
    """One page of an alias's moves, newest first."""
    mine = select(AliasEventRow).where(*_mine(name, alias))
    return paging.page(reader, mine, (AliasEventRow.sequence,), after, limit, newest_first=True)


def _mine(name: str, alias: str) -> tuple[ColumnElement[bool], ...]:
    return AliasEventRow.name == name, AliasEventRow.alias == alias
