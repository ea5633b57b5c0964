"""What each blob store does: a subclass says where bytes lie; hashing, checking and refusing are written once, here."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from blake3 import blake3

from registry.errors import Problem, RefusedError, UsageProblemError
from registry.hashing import bytes_blocks, chunk_blocks, hash_blocks
from registry.storage.failures import mismatch
from registry.storage.hashing import Progress, read_blocks, reports
from registry.storage.partial import PartialFile, Partials
from registry.storage.scratch import Scratch
from registry.storage.shelf import Shelf
from registry.storage.staging import Staged, Staging
from schemas.digests import PREFIX, BlobDigests, Digest
from schemas.names import is_whole_digest

FILES_AT_ONCE: Final = 16
"""Threads that mostly wait for a disk or a network: a journal syncs what many ask for at the price of one."""

STREAMED_BYTES: Final = 2**20
"""A block of a blob that is handed on as it is read."""


@dataclass(frozen=True)
class BlobEntry:
    """One stored blob; `modified` is when its bytes were last put, the age that garbage collection looks at."""

    digest: Digest
    size: int
    modified: datetime


class BlobStore(ABC):
    """Blobs under the BLAKE3 of their bytes.

    A put streams into staging while hashing, checks, and only then moves the whole to its address. It always replaces
    what lies there: the bytes are right by construction, so a blob that was cut short or changed is repaired, and a
    blob that was put again is young again for garbage collection.

    Every method raises `UnavailableError` (`STORE_FULL`, `STORE_READ_ONLY`, `STORE_UNAVAILABLE`) when the place cannot
    do its part, `UsageProblemError` (`DIGEST_INVALID`) for what is not a whole digest, and those that read a blob
    `NotFoundError` (`BLOB_MISSING`).
    """

    def __init__(self, staging: Staging, partials: Partials, scratch: Scratch) -> None:
        self.staging = staging
        self.partials = partials
        self.scratch = scratch

    def put_file(self, path: Path, *, expect: Digest | None = None, progress: Progress | None = None) -> BlobDigests:
        """Store a file, read once.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`, its bytes are not those of `expect`.
            UsageProblemError: `FILE_UNREADABLE`.
        """
        return self._put(read_blocks(path), expect, progress)

    def move_file(self, path: Path) -> BlobDigests:
        """Store a file out of a scratch folder, read once; it is whole and on disk, and where it can it moves.

        Raises:
            UsageProblemError: `FILE_UNREADABLE`.
        """
        digests = hash_blocks(read_blocks(path))
        path.chmod(0o444)
        os.utime(path)
        self._keep(Staged(path, digests))
        return digests

    @contextmanager
    def shelf(self) -> Iterator[Shelf]:
        """A place for files that are read before they are put; what is left there at the end is removed.

        Raises:
            UnavailableError: as `scratch.folder`.
        """
        with self.scratch.folder() as folder:
            yield Shelf(folder, self._folder())

    def put_files(self, wanted: Mapping[Digest, Path], shelved: Sequence[Staged] = ()) -> None:
        """Store many files, several at a time, and those from a shelf; when it returns all are in place, durably.

        A folder is synced once for all the files that came into it, so a thousand small files cost little more than
        their own syncs.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`.
            UsageProblemError: `FILE_UNREADABLE`. Either way none or some of the others are stored.
        """
        with ExitStack() as received, ThreadPoolExecutor(FILES_AT_ONCE, "put") as pool:

            def stage(digest: Digest, path: Path) -> Staged:
                address(digest)
                staged = received.enter_context(self.staging.receive(read_blocks(path)))
                _check(digest, staged.digests.digest)
                return staged

            for item in shelved:
                received.callback(item.path.unlink, missing_ok=True)
            self._keep_all([*shelved, *pool.map(stage, wanted.keys(), wanted.values())], pool)

    def put_stream(
        self, chunks: Iterable[bytes | memoryview], *, expect: Digest | None = None, limit: int | None = None
    ) -> BlobDigests:
        """Store chunks of any sizes, at most `limit` bytes together. What the iterator raises ends the put.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`, the bytes are not those of `expect`.
            RefusedError: `BLOB_TOO_LARGE`.
        """
        return self._put(chunk_blocks(chunks if limit is None else _at_most(chunks, limit)), expect)

    def put_bytes(self, data: bytes) -> BlobDigests:
        """Store bytes that are in memory."""
        return self._put(bytes_blocks(data))

    def adopt(self, file: PartialFile, digests: BlobDigests) -> None:
        """Store a file that arrived whole and has these digests, by moving it where that is possible."""
        file.complete()
        self._keep(Staged(file.path, digests))
        file.remove()

    def stream(self, digest: Digest, start: int, end: int) -> Iterator[bytes]:
        """The bytes ``[start, end)`` of a blob that has them, in blocks; not verified. Nothing is read before the first
        is asked for."""
        return self._stream(digest, start, end) if end > start else iter(())

    def stream_verified(self, digest: Digest) -> Iterator[bytes]:
        """The blob in blocks; the last step raises when the bytes were not those of `digest`.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`, after the last block.
        """
        seen = blake3()
        for block in self._blocks(digest):
            seen.update(block)
            yield bytes(block)
        _check(digest, PREFIX + seen.hexdigest())

    def verify(self, digest: Digest) -> BlobDigests:
        """Read the whole blob and compute both digests.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`.
        """
        observed = hash_blocks(self._blocks(digest))
        _check(digest, observed.digest)
        return observed

    def read(self, digest: Digest, offset: int = 0, length: int | None = None) -> bytes:
        """Exactly the bytes ``[offset, offset + length)``, or up to the end; not verified.

        Raises:
            RefusedError: `BLOB_RANGE`, the blob ends before the range does.
        """
        size = self.size(digest)
        end = size if length is None else offset + length
        if not 0 <= offset <= end <= size:
            raise RefusedError(_range_problem(digest, offset, end, size))
        return self._range(digest, offset, end) if end > offset else b""

    def sweep_staging(self, older_than_s: float) -> int:
        """Remove what unfinished puts left behind and nobody has written to for `older_than_s`, and the scratch folders
        of processes that are gone; how many."""
        return self.staging.sweep(older_than_s) + self.scratch.sweep()

    @abstractmethod
    def has(self, digest: Digest) -> bool:
        """Whether the blob is there."""

    @abstractmethod
    def size(self, digest: Digest) -> int:
        """Its size in bytes."""

    @abstractmethod
    def modified(self, digest: Digest) -> datetime:
        """When it was last put; putting it again makes it young again."""

    @abstractmethod
    def local_path(self, digest: Digest) -> Path:
        """A file with the blob's bytes for readers that map files; to be read, never written."""

    @abstractmethod
    def delete(self, digest: Digest) -> None:
        """Remove the blob; one that is not there is removed already."""

    @abstractmethod
    def entries(self) -> Iterator[BlobEntry]:
        """Every stored blob, in no particular order."""

    def _folder(self) -> Path | None:
        """The folder with all blobs, where there is one."""
        return None

    @abstractmethod
    def _keep(self, staged: Staged) -> None:
        """Move a complete, checked file to its address, durably and at once."""

    def _keep_all(self, staged: Sequence[Staged], pool: Executor) -> None:
        """Move complete, checked files to their addresses, durably."""
        for _ in pool.map(self._keep, staged):
            pass

    @abstractmethod
    def _blocks(self, digest: Digest) -> Iterator[memoryview]:
        """The blob in blocks, each valid while `BEHIND` further ones are asked for."""

    @abstractmethod
    def _stream(self, digest: Digest, start: int, end: int) -> Iterator[bytes]:
        """The bytes ``[start, end)`` of a blob that has them, in blocks."""

    @abstractmethod
    def _range(self, digest: Digest, start: int, end: int) -> bytes:
        """The bytes ``[start, end)`` of a blob that has them."""

    def _put(
        self, blocks: Iterable[memoryview], expect: Digest | None = None, progress: Progress | None = None
    ) -> BlobDigests:
        if expect is not None:
            address(expect)
        with self.staging.receive(blocks, *reports(progress)) as staged:
            if expect is not None:
                _check(expect, staged.digests.digest)
            self._keep(staged)
            return staged.digests


def address(digest: Digest) -> tuple[str, str]:
    """The folder and the name of a blob; nothing but a whole digest ever becomes a path."""
    if not is_whole_digest(digest):
        raise UsageProblemError(
            Problem(
                code="DIGEST_INVALID",
                expected="blake3: and 64 lowercase hex digits",
                observed=repr(digest)[:120],
                hint="Give the whole digest.",
            )
        )
    name = digest.removeprefix(PREFIX)
    return name[:2], name


def _check(expected: Digest, observed: Digest) -> None:
    if observed != expected:
        raise mismatch(expected, observed)


def _at_most(chunks: Iterable[bytes | memoryview], limit: int) -> Iterator[bytes | memoryview]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise RefusedError(
                Problem(
                    code="BLOB_TOO_LARGE",
                    expected=f"at most {limit} bytes",
                    observed=f"{size} bytes or more",
                    hint="Send a smaller file or raise the limit.",
                )
            )
        yield chunk


def _range_problem(digest: Digest, start: int, end: int, size: int) -> Problem:
    return Problem(
        code="BLOB_RANGE",
        expected=f"bytes {start} to {end} of blob {digest}",
        observed=f"{size} bytes in all",
        hint="Ask for a range inside the blob; if it should be longer it was cut short: `registry verify` tells.",
    )
