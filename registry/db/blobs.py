"""Blobs: what files are by content, which of them the store holds, and which are needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import ColumnElement, SQLColumnExpression, bindparam, delete, exists, or_, select, update

from registry.db import paging
from registry.db.paging import Page
from registry.db.prepared import Prepared, Values, insertion
from registry.db.rows import BaseLocationRow, BlobPresenceRow, BlobRow, FileRow, PurgeEventRow, TensorLocationRow
from registry.db.rows.core import table_of
from registry.db.session import Change, Reader
from schemas.digests import BlobDigests, Digest, Sha256

_SEEN: Final = Prepared(
    update(BlobPresenceRow).where(BlobPresenceRow.blob == bindparam("digest")).values(checked=bindparam("at"))
)


def put(change: Change, digests: Iterable[BlobDigests]) -> frozenset[Digest]:
    """Record files by content; those that are new."""
    rows: list[Values] = [{"digest": item.digest, "sha256": item.sha256, "size": item.size} for item in digests]
    return frozenset(str(row["digest"]) for row in change.ensure(BlobRow, rows))


def find(reader: Reader, digest: Digest) -> BlobRow | None:
    """A blob by BLAKE3."""
    return reader.one(select(BlobRow).where(BlobRow.digest == digest))


def by_sha256(reader: Reader, sha256: Sha256) -> BlobRow | None:
    """A blob by SHA-256."""
    return reader.one(select(BlobRow).where(BlobRow.sha256 == sha256).order_by(BlobRow.digest).limit(1))


def mark_present(change: Change, digests: Iterable[Digest]) -> None:
    """The store holds these blobs now."""
    wanted = list(dict.fromkeys(digests))
    known = present(change, wanted)
    if known:
        _SEEN.each(change.connection, [{"at": change.now, "digest": digest} for digest in known])
    new = [(digest, change.now) for digest in wanted if digest not in known]
    if new:
        insertion(table_of(BlobPresenceRow)).each(change.connection, new)


def mark_absent(change: Change, digest: Digest) -> None:
    """The store does not hold this blob."""
    change.session.execute(delete(BlobPresenceRow).where(BlobPresenceRow.blob == digest))


def present(reader: Reader, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Which of these the store holds, as far as known."""
    return reader.known(BlobPresenceRow, digests)


def presence_page(reader: Reader, after: str | None = None, limit: int = 1000) -> Page[BlobPresenceRow]:
    """One page of what the store holds, by digest."""
    return paging.page(reader, select(BlobPresenceRow), (BlobPresenceRow.blob,), after, limit)


def referenced(reader: Reader, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Which of these something still needs.

    A blob is needed as a file of a manifest or base that was not purged. A blob that only tensor locations know has no
    owner to ask, so it is kept.
    """
    file_, base, tensor = FileRow, BaseLocationRow, TensorLocationRow
    owned = exists().where(file_.blob == BlobRow.digest)
    needed = or_(
        exists().where(file_.blob == BlobRow.digest, ~_purged(file_.manifest)),
        exists().where(base.blob == BlobRow.digest, ~_purged(base.base)),
        ~owned & exists().where(tensor.blob == BlobRow.digest),
    )
    return frozenset(reader.chosen(select(BlobRow.digest).where(needed), BlobRow.digest, digests))


def _purged(manifest: SQLColumnExpression[str]) -> ColumnElement[bool]:
    return exists().where(PurgeEventRow.subject == manifest)
