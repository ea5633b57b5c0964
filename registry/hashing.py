"""One pass over a stream for all its digests: BLAKE3 and SHA-256 of the file, and whatever else reads the same blocks.

Hash functions release the interpreter lock. Both digests and further consumers of a block each have a thread beside
the one that reads, and may be a few blocks behind it, so that no core waits for the slowest at every block. Memory
stays at these few blocks whatever the size of the file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from itertools import cycle
from types import TracebackType
from typing import BinaryIO, Final, Self

from blake3 import blake3

from schemas.digests import PREFIX, BlobDigests

BLOCK_BYTES: Final = 4 * 2**20
BEHIND: Final = 3
"""Blocks that may be in the hands of consumers while the next one is read."""
_WORTH_A_THREAD: Final = 2**19

Block = bytes | memoryview
Update = Callable[[Block], object]
"""Takes the next bytes of a stream; called in order, from one thread at a time."""


class StreamHasher:
    """Both digests of one stream of bytes.

    Use as a context manager: `update` every block in order, then `finish`. A block must stay as it is until `BEHIND`
    further ones were given. Further consumers of a block (a tensor's digest, a check of its values) are given to
    `update` and run beside the two digests, in order.
    """

    def __init__(self) -> None:
        self._blake3 = blake3()
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._lines: tuple[ThreadPoolExecutor, ...] = ()
        self._running: deque[list[Future[None]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines:
            line.shutdown(wait=True, cancel_futures=True)

    def update(self, block: Block, *others: Update) -> None:
        """Take in the next block; may return while it is still being hashed, so that the next ones can be read."""
        self._size += len(block)
        if len(block) < _WORTH_A_THREAD:
            self._wait(0)
            _all(block, self._sha256.update, self._blake3.update, *others)
            return
        self._wait(BEHIND - 1)
        # one thread each, so that each takes the blocks in order
        self._lines = self._lines or tuple([ThreadPoolExecutor(1, "hash") for _ in range(3)])
        work = (self._sha256.update,), (self._blake3.update,), others
        self._running.append([line.submit(_all, block, *mine) for line, mine in zip(self._lines, work, strict=True)])

    def finish(self) -> BlobDigests:
        """Wait for the last block and give the digests; an error of any consumer is raised here or by `update`."""
        self._wait(0)
        return BlobDigests(PREFIX + self._blake3.hexdigest(), f"sha256:{self._sha256.hexdigest()}", self._size)

    def _wait(self, most: int) -> None:
        """Until no more than so many blocks are in the hands of consumers."""
        while len(self._running) > most:
            for future in self._running.popleft():
                future.result()


def _all(block: Block, *updates: Update) -> None:
    for update in updates:
        update(block)


def hash_blocks(blocks: Iterable[memoryview], *sinks: Callable[[memoryview], object]) -> BlobDigests:
    """Both digests of the blocks in order; each sink is handed every block once, by this thread."""
    with StreamHasher() as hasher:
        for block in blocks:
            hasher.update(block)
            for sink in sinks:
                sink(block)
        return hasher.finish()


def stream_blocks(stream: BinaryIO | FileIO, length: int | None = None, largest: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The next `length` bytes (or all) of a stream in blocks of at most `largest`; stops early at its end."""
    left = length
    while left is None or left > 0:
        block = stream.read(largest if left is None else min(largest, left))
        if not block:
            return
        yield block
        left = None if left is None else left - len(block)


def file_blocks(file: FileIO) -> Iterator[memoryview]:
    """The rest of an open unbuffered file in blocks, as views of buffers that take turns; a small one at once."""
    size = os.fstat(file.fileno()).st_size
    if size < BLOCK_BYTES:
        data = file.read(size + 1) or b""
        if data:
            yield memoryview(data)
        if len(data) == size:
            return
    for buffer in _buffers():
        filled = _fill(file, buffer)
        if filled:
            yield buffer[:filled]
        if filled < BLOCK_BYTES:
            return


def chunk_blocks(chunks: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Chunks of any sizes gathered into blocks of 4 MiB, as views of buffers that take turns."""
    buffers = _buffers()
    buffer, filled = next(buffers), 0
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            part = rest[: BLOCK_BYTES - filled]
            buffer[filled : filled + len(part)] = part
            filled, rest = filled + len(part), rest[len(part) :]
            if filled == BLOCK_BYTES:
                yield buffer
                buffer, filled = next(buffers), 0
    if filled:
        yield buffer[:filled]


def bytes_blocks(data: bytes) -> Iterator[memoryview]:
    """Bytes in memory in blocks of 4 MiB."""
    whole = memoryview(data)
    return (whole[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES))


def _fill(file: FileIO, buffer: memoryview) -> int:
    filled = 0
    while filled < len(buffer) and (count := file.readinto(buffer[filled:])):
        filled += count
    return filled


def _buffers() -> Iterator[memoryview]:
    """Anonymous maps rather than bytearrays: a page that a small file never touches costs nothing."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return cycle([memoryview(mmap.mmap(-1, BLOCK_BYTES, flags=flags)) for _ in range(BEHIND + 1)])
