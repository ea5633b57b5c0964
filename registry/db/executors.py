"""Who runs jobs and lives: a lock that its process holds, and that the system lets go of when the process is dead.

On PostgreSQL each executor holds a session advisory lock of its own, so any number may run and each can be asked about.
SQLite has one executor at a time: the holder of a lock on a file beside the database; the others wait for it.

A process that is stopped or hangs keeps its lock. So each says every moment that it lives, by a statement in its
session or by the time of its file, and who was silent for too long is given up: its session is ended, its file removed.
Should it wake, it takes a new lock like anybody. A clock is asked here, so nothing may depend on who is right: a job
ends only under the worker and the attempt that hold it (`registry.db.jobs`).
"""

from __future__ import annotations

import fcntl
import os
import time
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
SILENT_S: Final = 30.0
"""Who has not said for so long that it lives counts as dead, in seconds."""
_END_SILENT: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid <> pg_backend_pid()"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32 | objid::bigint) = :key"
    " AND clock_timestamp() - state_change > make_interval(secs => :silent_s)"
)
"""By the clock of the database. A session of another role shows no times to us: such a holder is never given up."""


class Executors(Protocol):
    """The executors of one registry, as one of them sees them. Each method raises `UnavailableError`
    (`DATABASE_UNAVAILABLE`)."""

    def live(self) -> bool:
        """Be alive to the others; False while another must end first. To be repeated: a lock can be lost, and who does
        not repeat it is given up."""
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


def executors(url: str, name: str, silent_s: float = SILENT_S) -> Executors:
    """The executors of the registry at a database URL, seen from the one of this name."""
    file = sqlite_path(url)
    if file is None:
        return SessionLocks(url, name, silent_s)
    return FileLock(file.with_suffix(".jobs.lock"), name, silent_s)


class SessionLocks:
    """Executors on one PostgreSQL, each with a session of its own."""

    def __init__(self, url: str, name: str, silent_s: float) -> None:
        options = {"options": _KEEPALIVE, "connect_timeout": 10}
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options)
        self._name = name
        self._silent_s = silent_s
        self._session: Connection | None = None
        self._held = False

    def live(self) -> bool:
        """See `Executors`: a lost session is opened anew, and its statement is what says that we live.

        While a former session of ours still has the lock nobody takes us for dead, and the lock is asked for again.
        """
        if not self._held:
            self._held = self._taken(self._name)
        else:
            self._ask("SELECT true")
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
            self._session, self._held = None, False
        self._engine.dispose()

    def _taken(self, name: str) -> bool:
        if self._ask("SELECT pg_try_advisory_lock(:key)", key=_key(name)):
            return True
        self._ask(_END_SILENT, key=_key(name), silent_s=self._silent_s)
        return False

    def _free(self, name: str) -> None:
        self._ask("SELECT pg_advisory_unlock(:key)", key=_key(name))

    def _ask(self, statement: str, **values: float) -> bool:
        with self._told():
            if self._session is None:
                self._session = self._engine.connect()
            return bool(self._session.scalar(text(statement), values))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            if self._session is not None:
                self._session.invalidate()
                self._session.close()
                self._session, self._held = None, False
            raise classify(error).as_error() from error


class FileLock:
    """The one executor of a SQLite registry."""

    def __init__(self, path: Path, name: str, silent_s: float) -> None:
        self._path = path
        self._name = name
        self._silent_s = silent_s
        self._file: int | None = None

    def live(self) -> bool:
        """See `Executors`: the time of the file says when we last did; whoever lost the file waits like the others."""
        if self._file is not None and not self._is_there(self._file):
            self.close()
        if self._file is None:
            self._file = self._locked()
        if self._file is None:
            return False
        os.utime(self._file)
        return True

    def _locked(self) -> int | None:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.time() - os.fstat(file).st_mtime > self._silent_s and self._is_there(file):
                self._path.unlink(missing_ok=True)
        else:
            if self._is_there(file):
                return file
        os.close(file)
        return None

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

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
