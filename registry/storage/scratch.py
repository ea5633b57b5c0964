"""Folders for work in progress, on the disk of the blobs: each is gone with whoever works in it.

A folder is marked by a file beside it that its process holds locked. The system lets go of the lock however the process
ends, so what a killed one left is told from what is in use, and a sweep removes it.
"""

from __future__ import annotations

import errno
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from registry.errors import ConflictError
from registry.storage.failures import folder_failures
from registry.storage.partial import PartialFile, Partials, is_name

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Scratch:
    """The scratch folders of a store: ``<id>.d`` with the mark ``<id>``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._marks = Partials(folder)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder of one's own, removed at the end with all that is in it.

        Raises:
            UnavailableError: `STORE_FULL`, also when it is the work that finds no room, and what the folder says else.
        """
        with self._mark() as mark:
            place = self._place(mark.path.name)
            try:
                with folder_failures(self._folder):
                    place.mkdir(0o700)
                yield place
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                with folder_failures(self._folder):
                    raise
            finally:
                shutil.rmtree(place, ignore_errors=True)
                mark.remove()

    def sweep(self) -> int:
        """Remove the folders and marks of those who ended without doing so; how many."""
        with folder_failures(self._folder):
            names = {path.stem for path in self._folder.iterdir() if is_name(path.stem)}
        return sum(map(self._swept, sorted(names)))

    def _swept(self, name: str) -> bool:
        try:
            mark = self._marks.open(name)
        except ConflictError:
            return False
        with mark:
            shutil.rmtree(self._place(name), ignore_errors=True)
            mark.remove()
        return True

    def _mark(self) -> PartialFile:
        while True:
            with suppress(ConflictError):  # a sweep looked at it before it was locked
                return self._marks.open(secrets.token_hex(16))

    def _place(self, name: str) -> Path:
        return self._folder / f"{name}.d"
