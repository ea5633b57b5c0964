"""Bodies of any size on their way to a thread that takes them, in blocks of 4 MiB.

The event loop only gathers what arrives; joining, hashing and writing a block happen in a thread while the next one is
gathered. Threads never wait for a network, so slow senders hold none, and there are few of them, so that uploads never
take those that answer other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from registry.errors import Problem, UnavailableError
from registry.hashing import BLOCK_BYTES

P = ParamSpec("P")
T = TypeVar("T")
MOST_AT_ONCE: Final = 64
"""Bodies received at once by one process; each may hold three blocks."""
_THREADS: Final = 8
_PAUSE_S: Final = 0.5
"""After which what has been gathered of a body that stands still is written, so that it is safe and takes no memory."""


class Arrivals:
    """Room for the bodies of one process."""

    def __init__(self) -> None:
        self._running = 0
        self._threads = CapacityLimiter(_THREADS)

    @contextmanager
    def room(self) -> Iterator[None]:
        """A place for one body. Raises UnavailableError `UPLOADS_BUSY`."""
        if self._running >= MOST_AT_ONCE:
            raise UnavailableError(_busy())
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def run(self, work: Callable[[], T]) -> T:
        """Work that reads or writes files, in a thread."""
        return await to_thread.run_sync(work, limiter=self._threads)

    async def pump(self, receive: Receive, take: Callable[[bytes], None]) -> None:
        """Hand a body to `take`, block by block; what has arrived is handed over also when the rest does not come.

        Raises:
            ClientDisconnect: the sender went away before the end; and whatever `take` raises.
        """
        gathered = _Gathered(self, take)
        try:
            while await gathered.fill(receive):
                pass
        finally:
            await gathered.flush()
            await gathered.settled()


class _Gathered:
    def __init__(self, arrivals: Arrivals, take: Callable[[bytes], None]) -> None:
        self._arrivals = arrivals
        self._take = take
        self._chunks: list[bytes] = []
        self._size = 0
        self._enough = 1  # the first bytes are looked at before more is read
        self._writing: asyncio.Task[None] | None = None

    async def fill(self, receive: Receive) -> bool:
        """Take in one message; False at the end of the body."""
        try:
            async with asyncio.timeout(_PAUSE_S if self._chunks or self._writing else None):
                message = await receive()
        except TimeoutError:
            await self.flush()
            await self.settled()  # a refusal does not wait for bytes that may never come
            return True
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        if chunk:
            self._chunks.append(chunk)
            self._size += len(chunk)
        if self._size >= self._enough:
            await self.flush()
            if self._enough < BLOCK_BYTES:
                await self.settled()
                self._enough = BLOCK_BYTES
        return bool(message.get("more_body", False))

    async def flush(self) -> None:
        """Begin to write what was gathered, once the block before it is written."""
        await self.settled()
        if self._chunks:
            chunks, self._chunks, self._size = self._chunks, [], 0
            self._writing = asyncio.create_task(self._arrivals.run(lambda: self._take(b"".join(chunks))))

    async def settled(self) -> None:
        """Wait for the block that is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                await writing
            except Exception:
                self._chunks.clear()  # what follows bytes that were not taken is not taken either
                raise


def _busy() -> Problem:
    return Problem(
        code="UPLOADS_BUSY",
        expected=f"at most {MOST_AT_ONCE} uploads at once",
        observed="as many",
        hint="Try again in a moment; an upload goes on where it stood.",
    )
