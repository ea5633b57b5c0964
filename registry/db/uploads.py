"""Resumable uploads: how many bytes have arrived, and until when they are kept."""

from __future__ import annotations

import secrets

from sqlalchemy import delete, select, update

from registry.db.problems import found
from registry.db.rows import UploadSessionRow
from registry.db.session import Change, Reader
from schemas.digests import Digest


def create(change: Change, *, expected: Digest | None, size: int | None, expires: str) -> UploadSessionRow:
    """Begin an upload."""
    row = UploadSessionRow(
        id=secrets.token_hex(16),
        principal=change.principal,
        expected=expected,
        size=size,
        offset=0,
        created=change.now,
        expires=expires,
    )
    change.insert(row)
    return row


def get(reader: Reader, upload_id: str) -> UploadSessionRow:
    """An upload. Raises NotFoundError `UPLOAD_UNKNOWN`."""
    mine = select(UploadSessionRow).where(UploadSessionRow.id == upload_id)
    row = reader.one(mine.execution_options(populate_existing=True))
    return found(row, "UPLOAD_UNKNOWN", f"an upload {upload_id}", "Begin a new upload.")


def advance(change: Change, upload_id: str, start: int, offset: int, expires: str) -> bool:
    """Bytes `start` to `offset` arrived; False when the upload did not stand at `start`."""
    mine = update(UploadSessionRow).where(UploadSessionRow.id == upload_id, UploadSessionRow.offset == start)
    return change.session.connection().execute(mine.values(offset=offset, expires=expires)).rowcount == 1


def remove(change: Change, upload_id: str) -> None:
    """End an upload, whether it became a blob or not."""
    change.session.execute(delete(UploadSessionRow).where(UploadSessionRow.id == upload_id))


def running(reader: Reader) -> tuple[UploadSessionRow, ...]:
    """Uploads that may still go on."""
    return reader.all(select(UploadSessionRow).where(UploadSessionRow.expires > reader.now))


def expired(reader: Reader) -> tuple[UploadSessionRow, ...]:
    """Uploads nobody continued in time."""
    return reader.all(select(UploadSessionRow).where(UploadSessionRow.expires <= reader.now))
