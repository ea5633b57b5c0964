"""Who runs jobs and lives: a lock that its process holds, and that the system lets go of when the process is dead.

On PostgreSQL each executor holds a session advisory lock of its own, so any number may run and each can be asked about.
SQLite has one executor at a time: the holder of a lock on a file beside the database; the others wait for it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from registry.db.engine import sqlite_path
from registry.db.failures import classify
from schemas.digests import PREFIX, blob_digest

_LEADER: Final = "leader"
_KEEPALIVE: Final = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
"""A machine that vanished without a word is noticed by the server within 25 s."""


class Executors(Protocol):
    """The executors of one registry, as one of them sees them. Each method raises `UnavailableError`
    (`DATABASE_UNAVAILABLE`)."""

    def live(self) -> bool:
        """Be alive to the others; False while another must end first. To be repeated: a lock can be lost."""
        ...

    def leading(self) -> AbstractContextManager[bool]:
        """Whether no other executor leads while the block runs."""
        ...

    def is_dead(self, executor: str) -> bool:
        """Whether another executor has ended, however it did."""
        ...

    def close(self) -> None:
        """Be dead to the others."""
        ...


def executors(url: str, name: str) -> Executors:
    """The executors of the registry at a database URL, seen from the one of this name."""
    file = sqlite_path(url)
    return SessionLocks(url, name) if file is None else FileLock(file.with_suffix(".jobs.lock"), name)


class SessionLocks:
    """Executors on one PostgreSQL, each with a session of its own."""

    def __init__(self, url: str, name: str) -> None:
        options = {"options": _KEEPALIVE, "connect_timeout": 10}
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options)
        self._name = name
        self._session: Connection | None = None

    def live(self) -> bool:
        """See `Executors`: a lost session is opened anew."""
        if self._session is None:
            return self._taken(self._name)
        with self._told():
            self._session.execute(text("SELECT 1"))
        return True

    @contextmanager
    def leading(self) -> Iterator[bool]:
        """See `Executors`."""
        taken = self._taken(_LEADER)
        try:
            yield taken
        finally:
            if taken:
                self._free(_LEADER)

    def is_dead(self, executor: str) -> bool:
        """See `Executors`: the lock of a living one cannot be had."""
        if executor == self._name or not self._taken(executor):
            return False
        self._free(executor)
        return True

    def close(self) -> None:
        """See `Executors`."""
        if self._session is not None:
            self._session.close()
            self._session = None
        self._engine.dispose()

    def _taken(self, name: str) -> bool:
        return self._ask("SELECT pg_try_advisory_lock(:key)", name)

    def _free(self, name: str) -> None:
        self._ask("SELECT pg_advisory_unlock(:key)", name)

    def _ask(self, statement: str, name: str) -> bool:
        with self._told():
            if self._session is None:
                self._session = self._engine.connect()
            return bool(self._session.scalar(text(statement), {"key": _key(name)}))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            if self._session is not None:
                self._session.invalidate()
                self._session.close()
                self._session = None
            raise classify(error).as_error() from error


class FileLock:
    """The one executor of a SQLite registry."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._file: int | None = None

    def live(self) -> bool:
        """See `Executors`."""
        if self._file is None:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                return False
            self._file = file
        return True

    def leading(self) -> AbstractContextManager[bool]:
        """See `Executors`."""
        return nullcontext(True)

    def is_dead(self, executor: str) -> bool:
        """See `Executors`: the lock says that there is no other."""
        return executor != self._name

    def close(self) -> None:
        """See `Executors`."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _key(name: str) -> int:
    """The 64-bit number of an advisory lock."""
    digits = blob_digest(f"adapter-registry executor {name}".encode()).removeprefix(PREFIX)
    return int.from_bytes(bytes.fromhex(digits[:16]), "big", signed=True)
