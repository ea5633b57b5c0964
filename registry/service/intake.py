"""Bytes on their way into the store: hashed, checked and appended to a staged file, block by block."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from registry.errors import DigestMismatchError, Problem, TooLargeError
from registry.formats.arriving import ArrivingFile
from registry.storage.partial import PartialFile
from schemas.digests import BlobDigests, BlobHasher, Digest

_KEPT: Final = 256


class Intake:
    """What is known of the beginning of one file: its running digests, and what its header promised."""

    def __init__(self, name: str | None, size: int | None, identity: tuple[int, int]) -> None:
        self.position = 0
        self.identity = identity
        self._hasher = BlobHasher()
        self._arriving = ArrivingFile(name, size)

    def update(self, block: bytes | memoryview) -> None:
        """Take in the next bytes. Raises RefusedError, see `ArrivingFile`."""
        self._arriving.update(block)
        self._hasher.update(block)
        self.position += len(block)

    def finish(self) -> BlobDigests:
        """Everything is there. Raises RefusedError, see `ArrivingFile`."""
        self._arriving.finish()
        return self._hasher.finish()


class Intakes:
    """The intakes of this process between two requests, so that nothing is hashed twice; the oldest are forgotten."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Intake] = OrderedDict()
        self._lock = Lock()

    def keep(self, upload: str, intake: Intake) -> None:
        """For the next request."""
        with self._lock:
            self._kept[upload] = intake
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def resume(self, upload: str, file: PartialFile, name: str | None, size: int | None) -> Intake:
        """The intake of what lies in a staged file: as kept, and brought up to what other processes wrote.

        A file that this process knows nothing of, as after a restart, is read once.
        """
        with self._lock:
            intake = self._kept.pop(upload, None)
        if intake is None or intake.identity != file.identity or intake.position > file.size:
            intake = Intake(name, size, file.identity)
        if intake.position < file.size:
            for block in file.blocks(intake.position):
                intake.update(block)
        return intake


class Receiving:
    """One request's turn at an upload: the file is locked until `close`. Used by one thread at a time."""

    def __init__(self, file: PartialFile, intake: Intake, limit: int) -> None:
        self.file = file
        self.intake = intake
        self._limit = limit
        self._lock = Lock()

    def take(self, block: bytes) -> None:
        """Check, hash and write the next bytes.

        Raises:
            TooLargeError: `BLOB_TOO_LARGE`.
            RefusedError: what is wrong with a safetensors header.
        """
        with self._lock:
            if self.file.size + len(block) > self._limit:
                raise TooLargeError(_too_large(self._limit, self.file.size + len(block)))
            self.intake.update(block)
            self.file.append(block)

    def settle(self) -> int:
        """How many bytes are there, all of them on disk."""
        with self._lock:
            self.file.sync()
            return self.file.size

    def close(self) -> None:
        """Let others in; waits for a block that is being written."""
        with self._lock:
            self.file.close()


def require(digests: BlobDigests, *expected: str | None) -> None:
    """Pass when the bytes have each of these digests, of either function. Raises DigestMismatchError."""
    for digest in expected:
        if digest is not None and digest not in (digests.digest, digests.sha256):
            raise DigestMismatchError(_mismatch(digest, digests))


def _mismatch(expected: Digest, digests: BlobDigests) -> Problem:
    observed = digests.sha256 if expected.startswith("sha256:") else digests.digest
    return Problem(
        code="BLOB_DIGEST_MISMATCH",
        expected=expected,
        observed=f"{observed}, {digests.size} bytes",
        hint="The bytes were changed or cut short on the way; send the file again from its beginning.",
    )


def _too_large(limit: int, size: int) -> Problem:
    return Problem(
        code="BLOB_TOO_LARGE",
        expected=f"at most {limit} bytes",
        observed=f"{size} bytes or more",
        hint="Say the right size when the upload begins; how large a file may be is the operator's choice.",
    )
