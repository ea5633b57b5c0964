"""Resumable uploads: begun, continued at any byte, finished under a digest.

Where an upload stands is the length of its staged file, which all processes that share the store's folder see; over an
object store it is how far the pieces reach that all machines put there (`registry.storage.pieces`).
An upload is kept for a day after its last byte; for as long the blob it became is safe from garbage collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from registry.db import Change, blobs, uploads
from registry.db.rows import UploadSessionRow
from registry.db.session import stamp
from registry.errors import (
    ConflictError,
    DigestMismatchError,
    NotFoundError,
    Problem,
    RangeUnsatisfiableError,
    RefusedError,
    TooLargeError,
)
from registry.formats.directory import plain_name_problems
from registry.formats.report import refuse_all
from registry.service.context import Context
from registry.service.intake import Intakes, Receiving, require
from schemas.digests import BlobDigests, Digest, Sha256
from schemas.model import Record

LARGEST_UPLOAD: Final = 2**37
"""128 GiB, larger than any single weight file that is published."""
KEPT: Final = timedelta(days=1)
_SWEPT_AT_ONCE: Final = 100
_ID: Final = re.compile(r"[0-9a-f]{32}")


class Upload(Record):
    """A running upload: `offset` bytes are here, `expires` is moved by every byte that comes."""

    id: str
    offset: int
    size: int | None
    digest: Digest | None
    expires: str


class HeldBlob(Record):
    """A blob the store holds."""

    digest: Digest
    sha256: Sha256
    size: int


@dataclass(frozen=True)
class Uploads:
    """The uploads of one process; `limit` is the size in bytes of the largest."""

    limit: int = LARGEST_UPLOAD
    _intakes: Intakes = field(default_factory=Intakes)

    def begin(
        self, context: Context, digest: Digest | None, size: int | None, name: str | None = None, *, anew: bool = False
    ) -> tuple[Upload, bool]:
        """Begin an upload, or unless `anew` find the one of the same blob that this caller began; True for a new one.

        Raises:
            TooLargeError: `BLOB_TOO_LARGE`.
            RefusedError: `PATH_OUTSIDE`, the name is no plain file name.
        """
        if name is not None:
            refuse_all(plain_name_problems(name, ("name",)))
        if size is not None and size > self.limit:
            raise TooLargeError(_larger_than_allowed(self.limit, size))
        _remove_expired(context)

        def work(change: Change) -> tuple[UploadSessionRow, bool]:
            held = None if digest is None or anew else uploads.begun(change, context.principal, digest, size)
            if held is not None:
                return held, False
            return uploads.create(change, expected=digest, size=size, expires=_later(), name=name), True

        row, new = context.database.change("upload.begin", context.principal, work)
        return _told(context, row), new

    def look(self, context: Context, upload: str) -> Upload:
        """Where an upload stands. Raises NotFoundError `UPLOAD_UNKNOWN`."""
        return _told(context, _mine(context, upload))

    def open(self, context: Context, upload: str, offset: int) -> Receiving:
        """Continue an upload at the byte where it stands; the caller ends with `pause` or `end`.

        Raises:
            NotFoundError: `UPLOAD_UNKNOWN`.
            ConflictError: `UPLOAD_BUSY`.
            RangeUnsatisfiableError: `UPLOAD_OFFSET`, with where it stands.
        """
        row = _mine(context, upload)
        receiving = self._opened(context, row)
        if receiving.file.size != offset:
            self._leave(upload, receiving)
            raise RangeUnsatisfiableError(_elsewhere(receiving.file.size, offset), receiving.file.size)
        return receiving

    def pause(self, context: Context, upload: str, receiving: Receiving) -> int:
        """Bring what has come to disk, remember it, and say how much it is."""
        try:
            offset = receiving.settle()
            context.database.change(
                "upload.advance", context.principal, lambda change: uploads.advance(change, upload, offset, _later())
            )
        finally:
            self._leave(upload, receiving)
        return offset

    def end(self, context: Context, upload: str, receiving: Receiving | None = None) -> None:
        """End an upload and remove what came of it. Raises what `open` raises."""
        row = _mine(context, upload)
        receiving = receiving or self._opened(context, row)
        try:
            context.database.change("upload.end", context.principal, lambda change: uploads.remove(change, upload))
            receiving.file.remove()
        finally:
            receiving.close()

    def finish(self, context: Context, upload: str, digest: str) -> HeldBlob:
        """Make the upload a blob; asked again, the same answer.

        What is refused is ended: its bytes will never be right.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`.
            RefusedError: a safetensors file that is not whole.
            ConflictError: `UPLOAD_INCOMPLETE`, `UPLOAD_BUSY`.
        """
        row = _mine(context, upload)
        receiving = self._opened(context, row)
        with self._ending(context, upload, receiving):
            if receiving.file.size == 0 and (held := _held(context, row, digest)) is not None:
                receiving.file.remove()
                return held
            if row.size is not None and receiving.file.size < row.size:
                raise ConflictError(_incomplete(row.size, receiving.file.size))
            digests = receiving.intake.finish()
            require(digests, digest, row.expected)
            _keep(context, upload, receiving, digests)
            return HeldBlob(digest=digests.digest, sha256=digests.sha256, size=digests.size)

    @contextmanager
    def _ending(self, context: Context, upload: str, receiving: Receiving) -> Iterator[None]:
        try:
            yield
        except (DigestMismatchError, RefusedError):
            self.end(context, upload, receiving)
            raise
        finally:
            self._leave(upload, receiving)

    def _opened(self, context: Context, row: UploadSessionRow) -> Receiving:
        file = context.store.partials.open(row.id)
        try:
            intake = self._intakes.resume(row.id, file, row.name, row.size)
        except BaseException:
            file.close()
            raise
        return Receiving(file, intake, self.limit if row.size is None else row.size)

    def _leave(self, upload: str, receiving: Receiving) -> None:
        self._intakes.keep(upload, receiving.intake)
        receiving.close()


def held_blob(context: Context, digest: str) -> HeldBlob:
    """A blob by either digest, when the store holds it. Raises NotFoundError `BLOB_MISSING`."""
    with context.database.reading() as reader:
        row = blobs.by_sha256(reader, digest) if digest.startswith("sha256:") else blobs.find(reader, digest)
    if row is None or not context.store.has(row.digest):
        raise NotFoundError(_missing(digest))
    return HeldBlob(digest=row.digest, sha256=row.sha256, size=row.size)


def sweep(context: Context, grace_s: float) -> int:
    """Remove uploads that nobody continued in time, and staged files of none; how many files."""
    removed = 0
    while count := _remove_expired(context):
        removed += count

    def running(name: str) -> bool:
        with context.database.reading() as reader:
            return uploads.known(reader, name)

    return removed + context.store.partials.sweep(grace_s, running)


def _remove_expired(context: Context) -> int:
    with context.database.reading() as reader:
        late = uploads.expired(reader, _SWEPT_AT_ONCE)
    gone = [row.id for row in late if context.store.partials.drop(row.id)]

    def forget(change: Change) -> None:
        for upload in gone:
            uploads.remove(change, upload)

    if gone:
        context.database.change("upload.expire", context.principal, forget)
    return len(gone)


def _keep(context: Context, upload: str, receiving: Receiving, digests: BlobDigests) -> None:
    """Claim the blob, move it to its address, then write its rows: garbage collection sees one of them at any time."""

    def claim(change: Change) -> bool:
        return uploads.claim(change, upload, digests.digest, digests.size, _later())

    def record(change: Change) -> None:
        blobs.put(change, [digests])
        blobs.mark_present(change, [digests.digest])
        change.note(digests.digest, {"upload": upload, "size": digests.size})

    context.database.change("upload.claim", context.principal, claim)
    context.store.adopt(receiving.file, digests)
    context.database.change("upload.finish", context.principal, record)


def _mine(context: Context, upload: str) -> UploadSessionRow:
    """A running upload of this caller; an administrator reaches all. Nobody learns of those of others."""
    if not _ID.fullmatch(upload):
        raise NotFoundError(_unknown(upload))
    with context.database.reading() as reader:
        row = uploads.get(reader, upload)
        mine = row.principal == context.principal or context.grants.covers("admin", "")
        if not mine or row.expires <= reader.now:
            raise NotFoundError(_unknown(upload))
    return row


def _told(context: Context, row: UploadSessionRow) -> Upload:
    return Upload(id=row.id, offset=_offset(context, row), size=row.size, digest=row.expected, expires=row.expires)


def _offset(context: Context, row: UploadSessionRow) -> int:
    """How much has arrived; when it became a blob, the length of that."""
    staged = context.store.partials.size(row.id)
    whole = row.expected is not None and row.size is not None and row.size == row.offset
    if staged == 0 and row.size and whole and row.expected is not None and context.store.has(row.expected):
        return row.size
    return staged


def _held(context: Context, row: UploadSessionRow, digest: str) -> HeldBlob | None:
    """What an upload without bytes of its own became before."""
    if row.expected is None or row.size != row.offset:
        return None
    try:
        held = held_blob(context, row.expected)
    except NotFoundError:
        return None
    require(BlobDigests(held.digest, held.sha256, held.size), digest)
    return held


def _later() -> str:
    return stamp(datetime.now(UTC) + KEPT)


def _unknown(upload: str) -> Problem:
    return Problem(
        code="UPLOAD_UNKNOWN",
        expected=f"an upload {upload[:64]}",
        observed="nothing, or one that has expired",
        hint="Begin a new upload.",
    )


def _elsewhere(size: int, offset: int) -> Problem:
    return Problem(
        code="UPLOAD_OFFSET",
        expected=f"the bytes from {size} on",
        observed=f"bytes from {offset} on",
        hint="Go on where it stands; 0 means from the beginning.",
    )


def _incomplete(size: int, offset: int) -> Problem:
    return Problem(
        code="UPLOAD_INCOMPLETE",
        expected=f"{size} bytes",
        observed=f"{offset} bytes so far",
        hint="Send the rest, then finish it.",
    )


def _larger_than_allowed(limit: int, size: int) -> Problem:
    return Problem(
        code="BLOB_TOO_LARGE",
        expected=f"at most {limit} bytes",
        observed=f"{size} bytes",
        hint="How large a file may be is the operator's choice.",
    )


def _missing(digest: str) -> Problem:
    return Problem(
        code="BLOB_MISSING",
        expected=f"blob {digest[:80]} in the store",
        observed="nothing there",
        hint="Upload the file, or correct the digest.",
    )
