"""Where a blob waits until it is complete and checked: private files under random names that nothing ever reads."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from registry.hashing import hash_blocks
from registry.storage.failures import folder_failures
from schemas.digests import BlobDigests


@dataclass(frozen=True)
class Staged:
    """A complete file in staging, read-only and on disk, with the digests of what was written."""

    path: Path
    digests: BlobDigests


class Staging:
    """The staging folder of a store, on the same file system as the blobs so that a move is a rename."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def receive(self, blocks: Iterable[memoryview], *sinks: Callable[[memoryview], object]) -> Iterator[Staged]:
        """Write the blocks while hashing them; whatever happens, no file is left behind unless it was moved away."""
        path = self._folder / secrets.token_hex(16)
        with folder_failures(self._folder):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o444)
        try:
            try:
                digests = hash_blocks(blocks, lambda block: self._write(file, block), *sinks)
                with folder_failures(self._folder):
                    os.fsync(file)
            finally:
                os.close(file)
            yield Staged(path, digests)
        finally:
            with suppress(OSError):
                path.unlink()

    def sweep(self, older_than_s: float) -> int:
        """Remove files that nobody has written to for `older_than_s`; a running put writes and stays."""
        newest = time.time() - older_than_s
        removed = 0
        with folder_failures(self._folder), os.scandir(self._folder) as files:
            for file in files:
                with suppress(FileNotFoundError):
                    status = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_mtime <= newest:
                        Path(file.path).unlink()
                        removed += 1
        return removed

    def _write(self, file: int, block: memoryview) -> None:
        with folder_failures(self._folder):
            write_all(file, block)


def write_all(file: int, block: memoryview) -> None:
    """Write a whole block, however many writes it takes."""
    while block:
        block = block[os.write(file, block) :]
