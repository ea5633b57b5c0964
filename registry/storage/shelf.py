"""Where files wait to be stored that were just read: whoever read them writes them, so that nobody reads them again.

A file on the shelf is on disk, whole, and has the content that its name says. One that is not there, for whatever
reason, can still be stored from where it was read.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from registry.storage.staging import Staged, write_all
from schemas.digests import PREFIX, BlobDigests, Digest

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_SEEN: Final = 4096
"""Files that are remembered, so that one that many adapters have in common is written once."""


class Shelf:
    """A private folder on the disk of the blobs. It can be sent to other processes, which fill it too.

    What lies in the folder `blobs` already is hardly asked for again, and left out.
    """

    def __init__(self, folder: Path, blobs: Path | None = None) -> None:
        self._folder = folder
        self._blobs = blobs
        self._seen: set[Digest] = set()
        self._begun: list[tuple[int, Path]] = []

    def __reduce__(self) -> tuple[type[Shelf], tuple[Path, Path | None]]:
        """Each process settles what it put there itself."""
        return Shelf, (self._folder, self._blobs)

    def put(self, digest: Digest, data: bytes) -> None:
        """Write bytes that have this digest. After `settle` they are there, unless the disk would not take them."""
        name = digest.removeprefix(PREFIX)
        if digest in self._seen or self._stored(name):
            return
        if len(self._seen) >= _SEEN:
            self._seen.clear()
        self._seen.add(digest)
        part = Path(f"{self._folder}/{name}.{os.getpid()}")
        with suppress(OSError):
            file = os.open(part, _NEW, 0o444)
            try:
                write_all(file, memoryview(data))
                if sys.platform == "linux":
                    # begins writing to the disk, so that `settle` waits for many files at once rather than one by one
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                os.close(file)
                part.unlink()
                raise
            self._begun.append((file, part))

    def settle(self) -> None:
        """Wait until everything that this process put there is on disk."""
        begun, self._begun = self._begun, []
        for file, part in begun:
            try:
                os.fsync(file)
                part.rename(part.with_suffix(""))
            except OSError:
                part.unlink(missing_ok=True)
            finally:
                os.close(file)

    def find(self, digests: BlobDigests) -> Staged | None:
        """A file that is there, ready to be moved to its address."""
        path = self._path(digests.digest)
        return Staged(path, digests) if path.exists() else None

    def drop(self, digest: Digest) -> None:
        """Remove a file; nothing happens when it is not there."""
        self._path(digest).unlink(missing_ok=True)

    def _stored(self, name: str) -> bool:
        return self._blobs is not None and os.access(f"{self._blobs}/{name[:2]}/{name}", os.F_OK)

    def _path(self, digest: Digest) -> Path:
        return self._folder / digest.removeprefix(PREFIX)
