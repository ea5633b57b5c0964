"""Names and versions: one namespace over all kinds, numbers given by the database and never reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import bindparam, exists, select

from registry.db import paging, purges
from registry.db.paging import Page
from registry.db.prepared import Chosen, Prepared
from registry.db.problems import found, purged
from registry.db.rows import NameRow, NameVersionRow, PurgeEventRow
from registry.db.session import Change, Reader
from registry.errors import ConflictError, Problem
from schemas.digests import Digest

_PURGED = exists().where(PurgeEventRow.subject == NameVersionRow.digest)
_KIND: Final = Prepared(select(NameRow.kind).where(NameRow.name == bindparam("name")))
_NEWEST: Final = (
    select(NameVersionRow)
    .where(NameVersionRow.name == bindparam("name"), ~_PURGED)
    .order_by(NameVersionRow.version.desc())
    .limit(1)
)
_VERSIONS: Final = Chosen(
    select(NameVersionRow.digest, NameVersionRow.name, NameVersionRow.version), NameVersionRow.digest
)
_OF: Final = Prepared(
    select(NameVersionRow.name, NameVersionRow.version)
    .where(NameVersionRow.digest == bindparam("digest"))
    .order_by(NameVersionRow.name, NameVersionRow.version)
)


class Named(NamedTuple):
    """A name and one of its versions."""

    name: str
    version: int


@dataclass(frozen=True)
class Assigned:
    """The version a manifest has under a name, and whether it is new."""

    version: int
    created: bool


def assign(change: Change, name: str, kind: str, digest: Digest, version: int | None = None) -> Assigned:
    """Give a stored manifest a version: the next one, or the one asked for; the same digest again keeps its own.

    Raises:
        ConflictError: `NAME_TAKEN_BY_KIND`, `VERSION_TAKEN`, `DIGEST_HAS_VERSION`.
        PurgedError: `MANIFEST_PURGED`, `NAME_PURGED`, `VERSION_PURGED`.
    """
    if purges.stands(change, digest):
        raise purged("MANIFEST_PURGED", digest)
    if _claim(change, name, kind):
        return _append(change, name, version or 1, kind, digest)
    same = change.one(select(NameVersionRow).where(NameVersionRow.name == name, NameVersionRow.digest == digest))
    if same is not None:
        return _again(same, version)
    number = version or change.next(NameVersionRow.version, NameVersionRow.name == name)
    _refuse_taken(change, name, number, digest)
    return _append(change, name, number, kind, digest)


def assign_first(change: Change, kind: str, named: Mapping[str, Digest]) -> None:
    """Give manifests that were stored by this very change version 1 of names that nobody has."""
    now = {"kind": kind, "created": change.now}
    change.write(NameRow, [{"name": name, **now} for name in named])
    change.write(NameVersionRow, [{"name": name, "version": 1, "digest": item, **now} for name, item in named.items()])


def all_newest(reader: Reader, wanted: Iterable[str]) -> dict[str, NameVersionRow]:
    """The highest version of each name that was not purged; a name without one is absent."""
    return {name: row for name in wanted for row in [reader.one(_NEWEST, name=name)] if row is not None}


def all_known(reader: Reader, wanted: Iterable[str]) -> frozenset[str]:
    """Which of these names somebody has or had."""
    return reader.known(NameRow, wanted)


def newest(reader: Reader, name: str) -> NameVersionRow:
    """The highest version that was not purged. Raises NotFoundError `NAME_UNKNOWN`, PurgedError `NAME_PURGED`."""
    row = reader.one(_NEWEST, name=name)
    if row is None and _known(reader, name):
        raise purged("NAME_PURGED", name)
    return found(row, "NAME_UNKNOWN", f"a name {name}", "List the names with `registry ls`.")


def at(reader: Reader, name: str, version: int) -> NameVersionRow:
    """One version of a name. Raises NotFoundError `NAME_UNKNOWN`, `VERSION_UNKNOWN`, PurgedError `VERSION_PURGED`."""
    row = _version(reader, name, version)
    if row is None and not _known(reader, name):
        found(None, "NAME_UNKNOWN", f"a name {name}", "List the names with `registry ls`.")
    row = found(row, "VERSION_UNKNOWN", f"{name}@{version}", f"`registry show {name}` tells the newest version.")
    if purges.stands(reader, row.digest):
        raise purged("VERSION_PURGED", f"{name}@{version}")
    return row


def of(reader: Reader, digest: Digest) -> tuple[Named, ...]:
    """Every name and version of a manifest, by name."""
    return tuple(Named(*row) for row in _OF.all(reader.connection, digest=digest))


def of_all(reader: Reader, digests: Iterable[Digest]) -> dict[Digest, tuple[tuple[str, int], ...]]:
    """Every name and version of many manifests, by name; one without a name is absent."""
    found: dict[Digest, list[tuple[str, int]]] = {}
    for digest, name, version in _VERSIONS.rows(reader.connection, digests):
        found.setdefault(digest, []).append((name, version))
    return {digest: tuple(sorted(mine)) for digest, mine in found.items()}


def versions(reader: Reader, name: str, after: str | None = None, limit: int = 50) -> Page[NameVersionRow]:
    """One page of a name's versions, newest first, purged ones too."""
    mine = select(NameVersionRow).where(NameVersionRow.name == name)
    return paging.page(reader, mine, (NameVersionRow.version,), after, limit, newest_first=True)


def page(
    reader: Reader, kind: str | None = None, after: str | None = None, limit: int = 50, *, prefix: str = ""
) -> Page[NameRow]:
    """One page of names in order, of those that begin with `prefix`."""
    statement = select(NameRow) if kind is None else select(NameRow).where(NameRow.kind == kind)
    if prefix:
        # "{" sorts right after the letters, and with them after everything a name may have
        statement = statement.where(NameRow.name >= prefix, NameRow.name < prefix + "{")
    return paging.page(reader, statement, (NameRow.name,), after, limit)


def _append(change: Change, name: str, version: int, kind: str, digest: Digest) -> Assigned:
    change.append(NameVersionRow(name=name, version=version, kind=kind, digest=digest, created=change.now))
    return Assigned(version, created=True)


def _claim(change: Change, name: str, kind: str) -> bool:
    """Whether the name is new."""
    known = _KIND.first(change.connection, name=name)
    if known is None:
        change.append(NameRow(name=name, kind=kind, created=change.now))
        return True
    if known[0] != kind:
        raise _conflict(
            "NAME_TAKEN_BY_KIND", f"a name of kind {kind}", f"{name} of kind {known[0]}", "Choose another name."
        )
    if not change.all(select(NameVersionRow.version).where(NameVersionRow.name == name, ~_PURGED).limit(1)):
        raise purged("NAME_PURGED", name)
    return False


def _again(row: NameVersionRow, version: int | None) -> Assigned:
    if version not in (None, row.version):
        place, hint = f"{row.digest} at {row.name}@{row.version}", "Use the version it has, or ask for none."
        raise _conflict("DIGEST_HAS_VERSION", f"{row.digest} at {row.name}@{version}", place, hint)
    return Assigned(row.version, created=False)


def _refuse_taken(change: Change, name: str, version: int, digest: Digest) -> None:
    taken = _version(change, name, version)
    if taken is None:
        return
    if purges.stands(change, taken.digest):
        raise purged("VERSION_PURGED", f"{name}@{version}")
    hint = "Ask for another version, or for none to get the next."
    raise _conflict("VERSION_TAKEN", f"{digest} at {name}@{version}", taken.digest, hint)


def _version(reader: Reader, name: str, version: int) -> NameVersionRow | None:
    return reader.one(select(NameVersionRow).where(NameVersionRow.name == name, NameVersionRow.version == version))


def _known(reader: Reader, name: str) -> bool:
    return reader.one(select(NameRow.name).where(NameRow.name == name)) is not None


def _conflict(code: str, expected: str, observed: str, hint: str) -> ConflictError:
    return ConflictError(Problem(code=code, expected=expected, observed=observed, hint=hint))
