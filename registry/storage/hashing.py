"""One pass over a file gives both digests; SHA-256, the slower one, runs in a thread beside reading and BLAKE3.

Two buffers take turns: while one is being hashed the next block is read into the other, so memory stays at two blocks
whatever the size of the file. BLAKE3 keeps to one thread: on two cores the second belongs to SHA-256.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from itertools import cycle
from pathlib import Path
from typing import Final

from blake3 import blake3

from registry.storage.failures import source_failures
from schemas.digests import PREFIX, BlobDigests

BLOCK_BYTES: Final = 4 * 2**20
_WORTH_A_THREAD: Final = 2**19

Progress = Callable[[int], None]
"""Told how many bytes have just been taken in."""


def hash_file(path: Path, *, progress: Progress | None = None) -> BlobDigests:
    """Both digests of a file, read once in blocks of 4 MiB.

    Raises:
        UsageProblemError: `FILE_UNREADABLE`.
    """
    return hash_blocks(read_blocks(path), *reports(progress))


def hash_blocks(blocks: Iterable[memoryview], *sinks: Callable[[memoryview], object]) -> BlobDigests:
    """Both digests of the blocks in order; each sink is handed every block once.

    A block must stay valid until the one after the next is asked for.
    """
    fast, slow, size = blake3(), hashlib.sha256(), 0
    pending: Future[None] | None = None
    with ThreadPoolExecutor(max_workers=1) as thread:
        for block in blocks:
            if pending is not None:
                pending.result()
                pending = None
            if len(block) < _WORTH_A_THREAD:
                slow.update(block)
            else:
                pending = thread.submit(slow.update, block)
            fast.update(block)
            size += len(block)
            for sink in sinks:
                sink(block)
    return BlobDigests(PREFIX + fast.hexdigest(), f"sha256:{slow.hexdigest()}", size)


def read_blocks(path: Path) -> Iterator[memoryview]:
    """The file in blocks of 4 MiB, as views of two buffers that take turns."""
    with source_failures(path), path.open("rb", buffering=0) as file:
        yield from file_blocks(file)


def file_blocks(file: FileIO) -> Iterator[memoryview]:
    """The rest of an open unbuffered file in blocks, as views of two buffers that take turns."""
    for buffer in _two_buffers():
        filled = _fill(file, buffer)
        if filled:
            yield buffer[:filled]
        if filled < BLOCK_BYTES:
            return


def chunk_blocks(chunks: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Chunks of any sizes gathered into blocks of 4 MiB, as views of two buffers that take turns."""
    buffers = _two_buffers()
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


def _two_buffers() -> Iterator[memoryview]:
    """Anonymous maps rather than bytearrays: a page that a small file never touches costs nothing."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return cycle([memoryview(mmap.mmap(-1, BLOCK_BYTES, flags=flags)) for _ in range(2)])


def reports(progress: Progress | None) -> tuple[Callable[[memoryview], object], ...]:
    """The sinks that tell `progress` about every block."""
    return () if progress is None else (lambda block: progress(len(block)),)
