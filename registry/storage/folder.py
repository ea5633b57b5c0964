"""Blobs in a local folder: ``blobs/<first two hex>/<hex>``, ``staging/<random>``, ``uploads/<id>`` and
``scratch/<id>``.

The operating system is used directly here. obstore's local store follows symbolic links, writes its partial files
beside the blobs and never calls fsync, so a blob could be there after a crash and be empty.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path

from registry.errors import NotFoundError
from registry.hashing import file_blocks, stream_blocks
from registry.storage.failures import folder_failures, missing
from registry.storage.partial import Partials
from registry.storage.scratch import Scratch
from registry.storage.staging import Staged, Staging
from registry.storage.store import FILES_AT_ONCE, STREAMED_BYTES, BlobEntry, BlobStore, address
from schemas.digests import PREFIX, Digest
from schemas.names import is_whole_digest


class FolderStore(BlobStore):
    """A folder; created when it does not exist. Inside it no symbolic link is ever followed."""

    def __init__(self, root: Path) -> None:
        """Open the folder store at `root`.

        Raises:
            UnavailableError: the folders are not there and cannot be created.
        """
        self.root = root.absolute()
        self._blobs = self.root / "blobs"
        private = [self.root / name for name in ("staging", "uploads", "scratch")]
        with folder_failures(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            for folder in (self._blobs, *private):
                folder.mkdir(0o755 if folder is self._blobs else 0o700, exist_ok=True)
                with _opened(folder):
                    pass
        staging, partials, scratch = private
        super().__init__(Staging(staging), Partials(partials), Scratch(scratch))

    def has(self, digest: Digest) -> bool:
        """Whether the blob is there."""
        try:
            self._file(digest).close()
        except NotFoundError:
            return False
        return True

    def size(self, digest: Digest) -> int:
        """Its size in bytes."""
        with self._file(digest) as file:
            return os.fstat(file.fileno()).st_size

    def modified(self, digest: Digest) -> datetime:
        """When it was last put."""
        with self._file(digest) as file:
            return datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)

    def local_path(self, digest: Digest) -> Path:
        """The blob's own file."""
        with self._file(digest):
            return self._blobs.joinpath(*address(digest))

    def delete(self, digest: Digest) -> None:
        """Remove the blob; one that is not there is removed already."""
        folder, name = address(digest)
        with self._root() as blobs, suppress(FileNotFoundError), _opened(folder, blobs) as shard:
            os.unlink(name, dir_fd=shard)
            os.fsync(shard)

    def entries(self) -> Iterator[BlobEntry]:
        """Every stored blob, in no particular order; files that are no blobs are passed over."""
        with folder_failures(self._blobs):
            shards = sorted(entry.name for entry in os.scandir(self._blobs) if entry.is_dir(follow_symlinks=False))
        for shard in shards:
            yield from self._shard_entries(shard)

    def _shard_entries(self, shard: str) -> list[BlobEntry]:
        found = []
        with folder_failures(self._blobs), suppress(FileNotFoundError), os.scandir(self._blobs / shard) as files:
            for file in files:
                digest = PREFIX + file.name
                if is_whole_digest(digest) and address(digest)[0] == shard and file.is_file(follow_symlinks=False):
                    status = file.stat(follow_symlinks=False)
                    found.append(BlobEntry(digest, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)))
        return found

    def _keep(self, staged: Staged) -> None:
        with self._root() as blobs:
            self._make_shards(blobs, [staged])
            _move(blobs, [staged])

    def _keep_all(self, staged: Sequence[Staged], pool: Executor) -> None:
        shards: dict[str, list[Staged]] = {}
        for item in staged:
            shards.setdefault(_shard(item), []).append(item)
        moves = list(shards.values())
        with self._root() as blobs:
            self._make_shards(blobs, staged)
            for _ in pool.map(partial(_move_all, blobs), [moves[i::FILES_AT_ONCE] for i in range(FILES_AT_ONCE)]):
                pass

    def _folder(self) -> Path:
        return self._blobs

    @staticmethod
    def _make_shards(blobs: int, staged: Sequence[Staged]) -> None:
        made = False
        for shard in {_shard(item) for item in staged}:
            with suppress(FileExistsError):
                os.mkdir(shard, 0o755, dir_fd=blobs)
                made = True
        if made:
            os.fsync(blobs)

    def _blocks(self, digest: Digest) -> Iterator[memoryview]:
        with self._file(digest) as file, folder_failures(self._blobs):
            yield from file_blocks(file)

    def _stream(self, digest: Digest, start: int, end: int) -> Iterator[bytes]:
        with self._file(digest) as file, folder_failures(self._blobs):
            file.seek(start)
            yield from stream_blocks(file, end - start, STREAMED_BYTES)

    def _range(self, digest: Digest, start: int, end: int) -> bytes:
        with self._file(digest) as file, folder_failures(self._blobs), BufferedReader(file) as reader:
            reader.seek(start)
            return reader.read(end - start)

    @contextmanager
    def _root(self) -> Iterator[int]:
        with folder_failures(self._blobs), _opened(self._blobs) as blobs:
            yield blobs

    def _file(self, digest: Digest) -> FileIO:
        folder, name = address(digest)
        with self._root() as blobs, suppress(FileNotFoundError), _opened(folder, blobs) as shard:
            if stat.S_ISREG(os.stat(name, dir_fd=shard, follow_symlinks=False).st_mode):
                return FileIO(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=shard))
        raise missing(digest)


def _shard(staged: Staged) -> str:
    return address(staged.digests.digest)[0]


def _move_all(blobs: int, shards: Iterable[Sequence[Staged]]) -> None:
    for staged in shards:
        _move(blobs, staged)


def _move(blobs: int, staged: Sequence[Staged]) -> None:
    """Move files of one shard there, and sync it once."""
    with _opened(_shard(staged[0]), blobs) as shard:
        for item in staged:
            os.rename(item.path, address(item.digests.digest)[1], dst_dir_fd=shard)
        os.fsync(shard)


@contextmanager
def _opened(folder: str | Path, parent: int | None = None) -> Iterator[int]:
    """A descriptor of a real folder; whatever else bears its name is an `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
