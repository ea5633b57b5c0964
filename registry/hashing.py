"""One pass over a stream for all its digests: BLAKE3 and SHA-256 of the file, and whatever else reads the same blocks.

Hash functions release the interpreter lock on large blocks, so each takes its own thread while the next block is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import BinaryIO, Final, Self

from blake3 import blake3

from schemas.digests import PREFIX, BlobDigests

BLOCK_BYTES: Final = 4 * 2**20
_INLINE_BYTES: Final = 2**16

Update = Callable[[bytes], object]
"""Takes the next bytes of a stream; called in order, from one thread at a time."""


def read_blocks(stream: BinaryIO, length: int | None = None) -> Iterator[bytes]:
    """The next `length` bytes (or all) of a stream in blocks of at most `BLOCK_BYTES`; stops early at its end."""
    left = length
    while left is None or left > 0:
        block = stream.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
        if not block:
            return
        yield block
        left = None if left is None else left - len(block)


class StreamHasher:
    """Both digests of one stream of bytes, computed in parallel threads.

    Use as a context manager: `update` every block in order, then `finish`. Further consumers of a block (a tensor's
    digest, a check of its values) are given to `update` and run beside the two digests, each in order.
    """

    def __init__(self) -> None:
        self._blake3 = blake3()
        self._sha256 = hashlib.sha256()
        self._size = 0
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="hash")
        self._running: list[Future[object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def update(self, block: bytes, *others: Update) -> None:
        """Take in the next block; returns while it is still being hashed, so that the next one can be read."""
        self._wait()
        self._size += len(block)
        updates: tuple[Update, ...] = (self._blake3.update, self._sha256.update, *others)
        if len(block) < _INLINE_BYTES:
            for update in updates:
                update(block)
        else:
            self._running = [self._pool.submit(update, block) for update in updates]

    def finish(self) -> BlobDigests:
        """Wait for the last block and give the digests; an error of any consumer is raised here or by `update`."""
        self._wait()
        return BlobDigests(PREFIX + self._blake3.hexdigest(), f"sha256:{self._sha256.hexdigest()}", self._size)

    def _wait(self) -> None:
        running, self._running = self._running, []
        for future in running:
            future.result()
