"""Purges: a tombstone says that the bytes of a manifest were removed on purpose; no row is ever deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import bindparam, select

from registry.db.prepared import Prepared
from registry.db.rows import PurgeEventRow
from registry.db.session import Change, Reader
from schemas.digests import Digest

_STANDS: Final = Prepared(select(PurgeEventRow.subject).where(PurgeEventRow.subject == bindparam("subject")))


def put(change: Change, subject: Digest, reason: str) -> bool:
    """Set the tombstone; False when it stood already."""
    return bool(change.ensure(PurgeEventRow, [{"subject": subject, "reason": reason, "created": change.now}]))


def find(reader: Reader, subject: Digest) -> PurgeEventRow | None:
    """The tombstone of a manifest."""
    return reader.one(select(PurgeEventRow).where(PurgeEventRow.subject == subject))


def stands(reader: Reader, subject: Digest) -> bool:
    """Whether a manifest was purged."""
    return _STANDS.first(reader.connection, subject=subject) is not None


def purged(reader: Reader, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Which of these manifests were purged."""
    return frozenset(reader.chosen(select(PurgeEventRow.subject), PurgeEventRow.subject, digests))
