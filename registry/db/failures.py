"""What a database error means: try again, away, full, damaged, or a fault of the program."""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from registry.db.rows import Row
from registry.db.rows.core import unique_keys
from registry.errors import ConflictError, InternalError, Problem, ProblemError, UnavailableError

Cause = Literal["race", "busy", "away", "unusable", "full", "read_only", "damaged", "missing", "fault"]

CONFLICTS: Final = {
    "pk_generation": "GENERATION_STALE",
    "pk_name": "NAME_TAKEN_BY_KIND",
    "pk_name_version": "VERSION_TAKEN",
    "uq_name_version_name_digest": "DIGEST_HAS_VERSION",
    "pk_statement": "STATEMENT_STALE",
    "uq_token_event_secret_hash": "TOKEN_TAKEN",
    "uq_job_live_key": "JOB_RUNNING",
    "pk_idempotency_key": "IDEMPOTENCY_KEY_REUSED",
}
"""What a lost race over a unique key is called when running again did not settle it."""

_UNAVAILABLE: Final[dict[Cause, tuple[str, str]]] = {
    "busy": ("DATABASE_BUSY", "Other changes hold the database; try again."),
    "away": ("DATABASE_UNAVAILABLE", "Check that the database runs and can be reached, then try again."),
    "unusable": ("DATABASE_UNAVAILABLE", "Check that the database file exists (`registry init`) and its disk works."),
    "full": ("DATABASE_FULL", "Make room on the disk of the database, then try again."),
    "read_only": ("DATABASE_READ_ONLY", "Make the database writable for this user."),
    "missing": ("SCHEMA_MISSING", "Run `registry init` or `registry db upgrade`."),
}
_SQLITE: Final[dict[int, Cause]] = {
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CANTOPEN: "unusable",
    sqlite3.SQLITE_IOERR: "unusable",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}
_POSTGRES: Final[dict[str, Cause]] = {
    "40001": "busy",  # serialization_failure
    "40P01": "busy",  # deadlock_detected
    "55P03": "busy",  # lock_not_available
    "57014": "busy",  # query_canceled
    "53300": "busy",  # too_many_connections
    "53100": "full",  # disk_full
    "25006": "read_only",  # read_only_sql_transaction
    "23505": "race",  # unique_violation
    "42P01": "missing",  # undefined_table
    "XX001": "damaged",  # data_corrupted
    "XX002": "damaged",  # index_corrupted
}
_ROOM: Final = 2**16
"""Bytes a change needs at least: the shared index of the write-ahead log takes 32 KiB, its pages come on top."""
_GUARDED = re.compile(r"exists: (\w+)")
_UNIQUE = re.compile(r"UNIQUE constraint failed: (.+)")


@dataclass(frozen=True)
class Failure:
    """A classified error; `constraint` names the unique key of a race."""

    cause: Cause
    message: str
    constraint: str | None = None

    @property
    def passing(self) -> bool:
        """Whether the whole change may succeed when it runs again."""
        return self.cause in ("race", "busy", "away")

    def as_error(self) -> ProblemError:
        """The typed error for callers."""
        if self.cause in _UNAVAILABLE:
            code, hint = _UNAVAILABLE[self.cause]
            return UnavailableError(self._problem(code, "a database that answers", hint))
        if self.cause == "race":
            code = CONFLICTS.get(self.constraint or "", "ROW_EXISTS")
            hint = "Another change got there first; read the current state and try again."
            return ConflictError(self._problem(code, f"a free key under {self.constraint}", hint))
        if self.cause == "damaged":
            return InternalError(self._problem("DATABASE_DAMAGED", "a sound database", "Restore it from a backup."))
        return InternalError(self._problem("DATABASE_FAULT", "a statement that works", "Report this as a fault."))

    def _problem(self, code: str, expected: str, hint: str) -> Problem:
        return Problem(code=code, expected=expected, observed=self.message, hint=hint)


BUSY: Final = Failure("busy", "other changes, one after another")
"""Our turn to write did not come."""


def classify(error: SQLAlchemyError, file: Path | None = None) -> Failure:
    """What happened, from the driver's error and, for SQLite, the state of the disk its `file` lies on."""
    if isinstance(error, PoolTimeoutError):
        return Failure("busy", "every connection is in use")
    original = error.orig if isinstance(error, DBAPIError) else None
    message = str(original or error).strip().partition("\n")[0]
    if isinstance(original, sqlite3.Error):
        return _sqlite(original, message, file)
    return _postgres(error, message)


def _sqlite(error: sqlite3.Error, message: str, file: Path | None) -> Failure:
    guarded, unique = _GUARDED.search(message), _UNIQUE.search(message)
    if guarded:
        return Failure("race", message, guarded[1])
    if unique:
        return Failure("race", message, _constraint(unique[1]))
    if message.startswith("no such table"):
        return Failure("missing", message)
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    cause = _SQLITE.get(code, "fault")
    return Failure(_disk(file) if cause == "unusable" and file is not None else cause, message)


def _disk(file: Path) -> Cause:
    """Why SQLite could not open or write: it says "disk I/O error" where its own side files find no room or right."""
    try:
        disk = os.statvfs(file)
    except OSError:
        return "unusable"
    if disk.f_flag & os.ST_RDONLY or not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        return "read_only"
    return "full" if disk.f_bavail * disk.f_frsize < _ROOM or (disk.f_files and not disk.f_favail) else "unusable"


def _postgres(error: SQLAlchemyError, message: str) -> Failure:
    # by attribute: the driver is an extra and need not be installed
    original = getattr(error, "orig", None)
    state: str | None = getattr(original, "sqlstate", None)
    if state is None:
        return Failure("away" if isinstance(error, OperationalError | InterfaceError) else "fault", message)
    if state.startswith("08") or state in ("57P01", "57P02", "57P03", "25P03"):
        return Failure("away", message)
    constraint: str | None = getattr(getattr(original, "diag", None), "constraint_name", None)
    return Failure(_POSTGRES.get(state, "fault"), message, constraint)


def _constraint(columns: str) -> str | None:
    """SQLite names the columns of a violated key, not its constraint."""
    pairs = [column.split(".") for column in columns.split(", ")]
    table = Row.metadata.tables[pairs[0][0]]
    found = tuple(pair[1] for pair in pairs)
    return next((name for name, key in unique_keys(table).items() if key == found), None)
