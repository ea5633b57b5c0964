"""Whether database and store can be read and written now: asked with real, bounded work."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from registry.db import migrate
from registry.db import probe as writing
from registry.errors import ProblemError
from registry.service.context import Context
from registry.service.jobs import Runner
from schemas.digests import Digest
from schemas.model import Record

PATIENCE_S: Final = 5.0
"""After which a part that has not answered counts as away, in seconds."""


class Part(Record):
    """One thing this server needs; `said` is what it answered when it is away."""

    name: str
    ok: bool
    said: str


def probe(context: Context) -> tuple[Part, ...]:
    """Ask every part, all at once."""
    asked: dict[str, Callable[[], None]] = {
        "schema": lambda: migrate.require(context.database.url),
        "database": lambda: writing.write(context.database),
        "store": lambda: _write(context),
    }
    pool = ThreadPoolExecutor(len(asked), "probe")
    try:
        running = {name: pool.submit(ask) for name, ask in asked.items()}
        return tuple(_part(name, future.result) for name, future in running.items())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def jobs(runner: Runner) -> Part:
    """Whether what runs jobs in this process still does; what it waits for are the other parts."""
    return Part(name="jobs", ok=runner.alive, said="ok" if runner.alive else "RUNNER_ENDED")


def _part(name: str, result: Callable[[float], None]) -> Part:
    try:
        result(PATIENCE_S)
    except ProblemError as error:
        return Part(name=name, ok=False, said=error.problems[0].code)
    except FutureTimeoutError:
        return Part(name=name, ok=False, said="NO_ANSWER")
    return Part(name=name, ok=True, said="ok")


def _write(context: Context) -> None:
    """A few random bytes stored, read back and removed; cut off in between they are left to garbage collection."""
    made: Digest = context.store.put_bytes(secrets.token_bytes(32)).digest
    try:
        context.store.verify(made)
    finally:
        context.store.delete(made)
