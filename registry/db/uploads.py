"""Resumable uploads: how many bytes have arrived, and until when they are kept."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from sqlalchemy import delete, select, update

from registry.db.problems import found
from registry.db.rows import UploadSessionRow
from registry.db.session import Change, Reader
from schemas.digests import Digest


def create(
    change: Change, *, expected: Digest | None, size: int | None, expires: str, name: str | None = None
) -> UploadSessionRow:
    """Begin an upload; one that says which blob it brings claims it."""
    row = UploadSessionRow(
        id=secrets.token_hex(16),
        principal=change.principal,
        expected=expected,
        size=size,
        offset=0,
        created=change.now,
        expires=expires,
        name=name,
    )
    change.insert(row)
    return row


def get(reader: Reader, upload_id: str) -> UploadSessionRow:
    """An upload. Raises NotFoundError `UPLOAD_UNKNOWN`."""
    mine = select(UploadSessionRow).where(UploadSessionRow.id == upload_id)
    row = reader.one(mine.execution_options(populate_existing=True))
    return found(row, "UPLOAD_UNKNOWN", f"an upload {upload_id}", "Begin a new upload.")


def begun(reader: Reader, principal: str, expected: Digest, size: int | None) -> UploadSessionRow | None:
    """The upload of this blob that a caller began before and may still continue."""
    mine = select(UploadSessionRow).where(
        UploadSessionRow.expected == expected,
        UploadSessionRow.principal == principal,
        UploadSessionRow.size == size if size is not None else UploadSessionRow.size.is_(None),
        UploadSessionRow.expires > reader.now,
    )
    return reader.one(mine.order_by(UploadSessionRow.created, UploadSessionRow.id).limit(1))


def advance(change: Change, upload_id: str, offset: int, expires: str) -> bool:
    """It stands at `offset` now, and is kept longer; False when it was ended meanwhile."""
    mine = update(UploadSessionRow).where(UploadSessionRow.id == upload_id)
    return change.session.connection().execute(mine.values(offset=offset, expires=expires)).rowcount == 1


def claim(change: Change, upload_id: str, digest: Digest, size: int, expires: str) -> bool:
    """All bytes of this blob are there: garbage collection keeps it until `expires`; False when it was ended.

    Garbage collection deletes inside a change, so that it either sees the claim or has ended before the blob comes to
    its address.
    """
    mine = update(UploadSessionRow).where(UploadSessionRow.id == upload_id)
    whole = mine.values(expected=digest, size=size, offset=size, expires=expires)
    return change.session.connection().execute(whole).rowcount == 1


def claimed(change: Change, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Which of these blobs uploads bring or brought just now; no new claim is made until this change has ended."""
    kept = select(UploadSessionRow.expected).where(UploadSessionRow.expires > change.now)
    found = change.chosen(kept, UploadSessionRow.expected, digests)
    return frozenset(digest for digest in found if digest is not None)


def remove(change: Change, upload_id: str) -> None:
    """End an upload, whether it became a blob or not."""
    change.session.execute(delete(UploadSessionRow).where(UploadSessionRow.id == upload_id))


def running(reader: Reader) -> tuple[UploadSessionRow, ...]:
    """Uploads that may still go on."""
    return reader.all(select(UploadSessionRow).where(UploadSessionRow.expires > reader.now))


def expired(reader: Reader, limit: int) -> tuple[UploadSessionRow, ...]:
    """Uploads nobody continued in time, or that ended long ago; at most `limit`."""
    late = select(UploadSessionRow).where(UploadSessionRow.expires <= reader.now)
    return reader.all(late.order_by(UploadSessionRow.expires).limit(limit))


def known(reader: Reader, upload_id: str) -> bool:
    """Whether there is such an upload."""
    return bool(reader.known(UploadSessionRow, [upload_id]))
