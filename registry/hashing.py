"""One pass over a stream for all its digests: BLAKE3 and SHA-256 of the file, and whatever else reads the same blocks.

SHA-256 alone takes about as long as BLAKE3 of a file, BLAKE3 of its tensors and reading it, and hash functions release
the interpreter lock. So two threads share the blocks, one for SHA-256 and one for all else. Whichever is ahead reads
the next block, before it is needed, and may be a few ahead, so that no core waits for the other at every block. Memory
stays at these few blocks whatever the size of the file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import FileIO
from itertools import chain, cycle
from threading import Condition
from typing import BinaryIO, Final

from blake3 import blake3

from schemas.digests import PREFIX, BlobDigests

BLOCK_BYTES: Final = 4 * 2**20
BEHIND: Final = 3
"""Blocks that one of the two threads may be ahead of the other."""
_PART_BYTES: Final = 2**20
"""What each of several consumers takes before the next one does, so that it still lies in a cache near by."""
_WORTH_A_THREAD: Final = 2**19

Update = Callable[[memoryview], object]
"""Takes the next bytes of a stream; called in order, from one thread at a time."""


def hash_blocks(blocks: Iterable[memoryview], *sinks: Update) -> BlobDigests:
    """Both digests of the blocks in order; each sink (digests of tensors, a file) is handed every block once.

    From the first large block on, sinks run on a thread of their own and the iterator is asked by two in turns. A block
    must stay as it is until `BEHIND` further ones were asked for. An error of either is raised here.
    """
    sha256, others, sizes, left = hashlib.sha256(), blake3(), [], iter(blocks)
    rest = [others.update, lambda block: sizes.append(len(block)), *sinks]
    for block in left:
        if len(block) < _WORTH_A_THREAD:
            _all(block, sha256.update, *rest)
            continue
        turns = _Turns(chain((block,), left))
        with ThreadPoolExecutor(1, "hash") as beside:
            other = beside.submit(turns.run, 1, *rest)
            turns.run(0, sha256.update)
            other.result()
    return BlobDigests(PREFIX + others.hexdigest(), f"sha256:{sha256.hexdigest()}", sum(sizes))


class _Turns:
    """Blocks for two threads, to each of them all in order; whichever takes the last one read reads one more first."""

    def __init__(self, blocks: Iterator[memoryview]) -> None:
        self._blocks = blocks
        self._waiting: tuple[deque[memoryview], deque[memoryview]] = (deque(), deque())
        self._reading = self._ended = False
        self._moved = Condition()

    def run(self, mine: int, *updates: Update) -> None:
        """Hand every block to the updates, as thread 0 or 1; when one thread fails, the other stops soon."""
        try:
            while (block := self._next(self._waiting[mine])) is not None:
                for start in range(0, len(block), _PART_BYTES):
                    _all(block[start : start + _PART_BYTES], *updates)
        finally:
            with self._moved:
                self._ended = True
                self._moved.notify()

    def _next(self, own: deque[memoryview]) -> memoryview | None:
        """The next block, or null when there is none; waits while the other thread is too far behind."""
        while True:
            with self._moved:
                self._moved.wait_for(lambda: own or self._ended or self._readable())
                block = own.popleft() if own else None
                reads = not own and self._readable()
                self._reading = self._reading or reads
                self._moved.notify()
            if reads:
                self._read()
            if block is not None or not reads:
                return block

    def _readable(self) -> bool:
        return not self._reading and not self._ended and max(map(len, self._waiting)) < BEHIND

    def _read(self) -> None:
        block = next(self._blocks, None)
        with self._moved:
            self._reading = False
            if block is None:
                self._ended = True
            else:
                for waiting in self._waiting:
                    waiting.append(block)
            self._moved.notify()


def _all(block: memoryview, *updates: Update) -> None:
    for update in updates:
        update(block)


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
    for buffer in _buffers(large=True):
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


def _buffers(*, large: bool = False) -> Iterator[memoryview]:
    """Anonymous maps rather than bytearrays: a page that a small stream never touches costs nothing.

    For `large` ones that are filled whole, huge pages where there are: all that copies or hashes them takes a tenth
    less.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    maps = [mmap.mmap(-1, BLOCK_BYTES, flags=flags) for _ in range(BEHIND + 1)]
    if large and sys.platform == "linux":
        for found in maps:
            # a kernel built without them
            with suppress(OSError):
                found.madvise(mmap.MADV_HUGEPAGE)
    return cycle(map(memoryview, maps))
