"""Files that arrive over an object store: any machine goes on where another one stopped.

What arrives lies in a folder of this machine and, before it is acknowledged, in the object store too, in pieces named
``uploads/<id>/<where it begins>``. How far they reach without a gap says how far the upload is. A piece is only ever
created, so of two machines that write to one upload the second is told to look where it stands. A machine that has less
than the pieces fetches the rest; one that has more, which nobody acknowledged, gives its own up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore as Remote

from registry.errors import ConflictError
from registry.hashing import BLOCK_BYTES
from registry.storage.failures import folder_failures, object_failures
from registry.storage.partial import PartialFile, Partials, busy, is_name

PIECE_BYTES: Final = 2**24
"""After which what arrives is put as a piece; a piece is in memory while it is put."""
_ROOT: Final = "uploads"


@dataclass(frozen=True)
class Piece:
    """The bytes ``[start, end)`` of an upload."""

    key: str
    start: int
    end: int
    put: datetime


class PiecedFile(PartialFile):
    """A file that is arriving here, whose first `shared` bytes lie in the object store."""

    def __init__(self, path: Path, descriptor: int, remote: Remote, url: str) -> None:
        super().__init__(path, descriptor)
        self.shared = 0
        self._remote = remote
        self._url = url

    def fetch(self, pieces: list[Piece]) -> None:
        """Bring what other machines took in."""
        for piece in pieces:
            if piece.end > self.size:
                missing = (self.size - piece.start, piece.end - piece.start)
                with object_failures(self._url):
                    for chunk in obstore.get(self._remote, piece.key, options={"range": missing}).stream(BLOCK_BYTES):
                        super().append(bytes(chunk))
            self.shared = piece.end

    def append(self, block: bytes) -> None:
        """Write the next bytes. Raises ConflictError `UPLOAD_BUSY`, another machine wrote there."""
        super().append(block)
        if self.size - self.shared >= PIECE_BYTES:
            self.sync()

    def sync(self) -> None:
        """Everything appended so far is in the object store when this returns. Raises what `append` raises."""
        if self.size == self.shared:
            return
        key, data = _key(self.path.name, self.shared), self._since()
        with object_failures(self._url):
            try:
                obstore.put(self._remote, key, data, mode="create", use_multipart=False)
            except AlreadyExistsError as error:
                # the answer to a put may be lost, and the put be tried again
                if bytes(obstore.get(self._remote, key).bytes()) != data:
                    self.size = self.shared
                    super().remove()
                    raise ConflictError(busy()) from error
        self.shared = self.size

    def remove(self) -> None:
        """Give the file and its pieces up."""
        super().remove()
        with object_failures(self._url):
            remove(self._remote, self.path.name)

    def _since(self) -> bytes:
        """What the object store does not have."""
        with folder_failures(self.path.parent):
            return os.pread(self._descriptor, self.size - self.shared, self.shared)


class Pieces(Partials):
    """Arriving files of one machine, beside the pieces that all machines share."""

    def __init__(self, folder: Path, remote: Remote, url: str) -> None:
        super().__init__(folder)
        self._remote = remote
        self._url = url

    def size(self, name: str) -> int:
        """How many bytes have arrived on any machine."""
        return _end(self._of(name))

    def open(self, name: str) -> PartialFile:
        """The file with all that has arrived on any machine; see `Partials`."""
        file = self.locked(name)
        assert isinstance(file, PiecedFile)
        try:
            pieces = self._of(name)
            if file.size > _end(pieces):
                PartialFile.remove(file)
                file.close()
                return self.open(name)
            file.fetch(pieces)
        except BaseException:
            file.close()
            raise
        return file

    def sweep(self, older_than_s: float, keep: Callable[[str], bool]) -> int:
        """See `Partials`; the same for pieces whose upload no machine remembers."""
        removed = super().sweep(older_than_s, keep)
        newest = datetime.now(UTC) - timedelta(seconds=older_than_s)
        with object_failures(self._url):
            folders = obstore.list_with_delimiter(self._remote, _ROOT)["common_prefixes"]
        for name in filter(is_name, (folder.rpartition("/")[2] for folder in folders)):
            old = all(piece.put <= newest for piece in self._of(name))
            removed += old and not keep(name) and self.drop(name)
        return removed

    def _opened(self, path: Path, descriptor: int) -> PartialFile:
        return PiecedFile(path, descriptor, self._remote, self._url)

    def _of(self, name: str) -> list[Piece]:
        """The pieces of an upload in order, up to the first gap."""
        with object_failures(self._url):
            found = sorted(_listed(self._remote, name), key=lambda piece: piece.start)
        reaching: list[Piece] = []
        for piece in found:
            if piece.start != _end(reaching):
                break
            reaching.append(piece)
        return reaching


def remove(remote: Remote, name: str) -> None:
    """Remove the pieces of an upload."""
    keys = [piece.key for piece in _listed(remote, name)]
    if keys:
        obstore.delete(remote, keys)


def _listed(remote: Remote, name: str) -> Iterator[Piece]:
    for page in obstore.list(remote, f"{_ROOT}/{name}"):
        for item in page:
            start = int(item["path"].rpartition("/")[2])
            yield Piece(item["path"], start, start + item["size"], item["last_modified"])


def _end(pieces: list[Piece]) -> int:
    return pieces[-1].end if pieces else 0


def _key(name: str, start: int) -> str:
    return f"{_ROOT}/{name}/{start:016d}"
