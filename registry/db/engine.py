"""Engines: how each database is opened and how its transactions begin."""

from __future__ import annotations

import sqlite3
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry

from registry.db.prepared import Cells, copied

if TYPE_CHECKING:
    import psycopg

WAIT_S: Final = 5.0
"""How long SQLite waits for its write lock before the change is tried again as a whole."""
LONGEST_WAIT_S: Final = 60.0
"""How long a reader waits where it must (another connection recovers the log), and a change on PostgreSQL for its turn:
as long as it has patience, since asking again would put it at the end of the line."""
_BEGIN: Final = "registry_begin"
_PRAGMAS: Final = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA recursive_triggers = ON",  # REPLACE then fires the delete guards
    "PRAGMA synchronous = FULL",
    "PRAGMA cache_size = -16384",  # KiB: a lineage of hundreds reads more pages than the 2 MiB that are the default
)
_READING: Final = (
    "PRAGMA query_only = ON",
    "PRAGMA temp_store = DEFAULT",
    f"PRAGMA busy_timeout = {int(LONGEST_WAIT_S * 1000)}",
)
_WRITING: Final = (
    "PRAGMA query_only = OFF",
    "PRAGMA temp_store = MEMORY",  # what undoes one statement is small; sorting for a reader may not be
    f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}",
)
_TEXT: Final = methodcaller("decode", "utf-8", "surrogateescape")
"""A damaged cell must still be readable, or `verify` could not name it. (No function of ours: it is called a cell.)"""


def open_engine(url: str, *, create: bool = False) -> Engine:
    """An engine for a database URL; `create` lets SQLite make a missing file, and puts it into WAL mode."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed, create)
    # rows are found by keys in random order, in memory or on a solid-state disk: the default of 4 is for turning disks
    # no statement here runs long enough to be worth compiling
    options = f"-c lock_timeout={int(LONGEST_WAIT_S * 1000)} -c random_page_cost=1.1 -c jit=off"
    engine = create_engine(
        parsed,
        pool_size=8,
        max_overflow=32,
        pool_pre_ping=True,
        hide_parameters=True,  # an error that is logged must not tell a secret
        connect_args={"options": options, "connect_timeout": 5},
    )

    @event.listens_for(engine, "do_executemany")
    def execute(cursor: psycopg.Cursor[Any], statement: str, rows: list[Cells], _context: object) -> bool:
        return copied(cursor, statement, rows)

    return engine


def writing(engine: Engine) -> Engine:
    """The same pool, for transactions that write; SQLite takes its write lock at once, so nothing read goes stale."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
    return engine.execution_options(isolation_level="READ COMMITTED")


def snapshot(engine: Engine) -> Engine:
    """The same pool, for transactions that see one state and cannot write."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_BEGIN: "BEGIN"})
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL; None for another database."""
    parsed = make_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _sqlite(url: URL, create: bool) -> Engine:
    path = Path(url.database or "").absolute()
    name = f"file:{quote(str(path))}?mode={'rwc' if create else 'rw'}"

    def connect() -> sqlite3.Connection:
        # autocommit mode: the driver begins nothing by itself, the "begin" event below does
        connection = sqlite3.connect(name, uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        connection.text_factory = _TEXT
        return connection

    engine = create_engine(url, creator=connect, pool_size=8, max_overflow=32, hide_parameters=True)
    pragmas = (*_PRAGMAS, "PRAGMA journal_mode = WAL") if create else _PRAGMAS

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        for pragma in pragmas:
            connection.execute(pragma).close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options: dict[str, Any] = dict(connection.get_execution_options())
        statement = options.get(_BEGIN, "BEGIN IMMEDIATE")
        # only where it changes: SQLite compiles every statement that it keeps anew after `query_only`
        if connection.info.get(_BEGIN) != statement:
            for pragma in _READING if statement == "BEGIN" else _WRITING:
                connection.exec_driver_sql(pragma)
            connection.info[_BEGIN] = statement
        connection.exec_driver_sql(statement)

    return engine
