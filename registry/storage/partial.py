"""Files that are still arriving: bytes are only ever appended, so whatever lies there after a crash is a beginning.

One writer at a time: each holds the file's lock, which the operating system takes back when its process dies. How long
the file is says how far the upload is, to every process that shares the folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final, Self

from registry.errors import ConflictError, Problem
from registry.hashing import file_blocks
from registry.storage.failures import folder_failures

_NAME: Final = re.compile(r"[0-9a-f]{32}")


class PartialFile:
    """A file that is arriving, open and locked until `close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self.size = status.st_size
        self.identity = (status.st_dev, status.st_ino)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, block: bytes) -> None:
        """Write the next bytes."""
        rest = memoryview(block)
        with folder_failures(self.path.parent):
            while rest:
                written = os.write(self._descriptor, rest)
                self.size += written
                rest = rest[written:]

    def blocks(self, start: int) -> Iterator[memoryview]:
        """What lies there from byte `start` on."""
        with folder_failures(self.path.parent), FileIO(os.dup(self._descriptor)) as file:
            file.seek(start)
            yield from file_blocks(file)

    def sync(self) -> None:
        """Everything appended so far is on disk when this returns."""
        with folder_failures(self.path.parent):
            os.fsync(self._descriptor)

    def complete(self) -> None:
        """Read-only, young and on disk: ready to be moved to its address."""
        with folder_failures(self.path.parent):
            os.fchmod(self._descriptor, 0o444)
            os.utime(self._descriptor)
            os.fsync(self._descriptor)

    def remove(self) -> None:
        """Give the file up; nothing happens when it was moved away."""
        with folder_failures(self.path.parent), suppress(FileNotFoundError):
            self.path.unlink()

    def close(self) -> None:
        """Let another writer in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Partials:
    """The folder of arriving files, on the file system of the blobs; names are 32 hex digits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def size(self, name: str) -> int:
        """How many bytes have arrived here; 0 for a file nobody began."""
        with folder_failures(self.folder), suppress(FileNotFoundError):
            return self._path(name).stat(follow_symlinks=False).st_size
        return 0

    def open(self, name: str) -> PartialFile:
        """The file with all that has arrived, made when it is not there, locked for this caller.

        Raises:
            ConflictError: `UPLOAD_BUSY`, somebody else is writing.
            UnavailableError: the folder cannot be written.
        """
        return self.locked(name)

    def locked(self, name: str) -> PartialFile:
        """The file as it lies here. Raises what `open` raises."""
        path = self._path(name)
        while True:
            with folder_failures(self.folder):
                descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise ConflictError(busy()) from error
            if _same(path, descriptor):
                return self._opened(path, descriptor)
            os.close(descriptor)  # moved or removed between opening and locking

    def drop(self, name: str) -> bool:
        """Remove a file; False when somebody is writing to it."""
        try:
            with self.locked(name) as file:
                file.remove()
        except ConflictError:
            return False
        return True

    def sweep(self, older_than_s: float, keep: Callable[[str], bool]) -> int:
        """Remove files that nobody writes, none has written to for so long, and `keep` does not ask to keep."""
        newest = time.time() - older_than_s
        removed = 0
        with folder_failures(self.folder):
            names = [
                entry.name
                for entry in os.scandir(self.folder)
                if is_name(entry.name) and entry.is_file(follow_symlinks=False)
            ]
        for name in names:
            with suppress(FileNotFoundError):
                old = self._path(name).stat(follow_symlinks=False).st_mtime <= newest
                removed += old and not keep(name) and self.drop(name)
        return removed

    def _opened(self, path: Path, descriptor: int) -> PartialFile:
        return PartialFile(path, descriptor)

    def _path(self, name: str) -> Path:
        assert is_name(name), "names are drawn by the registry"
        return self.folder / name


def is_name(text: str) -> bool:
    """Whether this names an arriving file."""
    return _NAME.fullmatch(text) is not None


def _same(path: Path, descriptor: int) -> bool:
    opened = os.fstat(descriptor)
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(opened.st_mode) and (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino)


def busy() -> Problem:
    """Two write to one upload."""
    return Problem(
        code="UPLOAD_BUSY",
        expected="an upload nobody else writes to",
        observed="another request is writing",
        hint="Wait until it has ended, ask where the upload stands, and go on there.",
    )
