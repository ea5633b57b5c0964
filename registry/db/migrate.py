"""The schema's history: create, upgrade, and refuse to work on another one than the program's.

Alembic is loaded by what runs migrations alone: to open a registry is to compare its revision with the newest, and
should not take the half second of processor that Alembic takes to load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine, column, func, inspect, select, table
from sqlalchemy.exc import SQLAlchemyError

from registry.db import engine as engines
from registry.db import guards
from registry.db.failures import BUSY, classify
from registry.db.queue import turn
from registry.errors import Problem, UnavailableError

if TYPE_CHECKING:
    from alembic.config import Config

REVISIONS: Final = ("0001", "0002", "0003")
"""Every revision that `migrations` holds, oldest first."""
HEAD: Final = REVISIONS[-1]
"""The revision this program works on."""
_VERSION: Final = table("alembic_version", column("version_num"))
_UPGRADE_LOCK: Final = 0x6164_6170_7465_7222
PATIENCE_S: Final = 60.0
"""How long an upgrade waits for other changes."""
MISSING: Final = "SCHEMA_MISSING"
OLDER: Final = "SCHEMA_OLDER"
NEWER: Final = "SCHEMA_NEWER"


def current(url: str) -> str | None:
    """The revision of a database; None when there is none yet."""
    path = engines.sqlite_path(url)
    if path is not None and not path.exists():
        return None
    with _reading(url) as connection:
        return revision(connection)


def require(url: str) -> None:
    """Pass when the schema is the program's own.

    Raises:
        UnavailableError: `SCHEMA_MISSING`, `SCHEMA_OLDER`, `SCHEMA_NEWER`.
    """
    problem = schema_problem(current(url))
    if problem is not None:
        raise UnavailableError(problem)


def upgrade(url: str) -> None:
    """Create the schema or bring it to this program's revision, and put the guards in place: one transaction.

    Interrupted at any moment, the database is as it was before. On SQLite a missing file is created, in WAL mode.

    Raises:
        UnavailableError: `SCHEMA_NEWER`; or the database is busy or away.
    """
    with _writing(url) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        found = revision(connection)
        problem = schema_problem(found)
        if problem is not None and problem.code == NEWER:
            raise UnavailableError(problem)
        guards.remove(connection)
        if found != HEAD:
            _migrate(connection)
        guards.install(connection)


def revision(connection: Connection) -> str | None:
    """The revision stored in a database, where Alembic keeps it."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def schema_problem(found: str | None) -> Problem | None:
    """What is wrong with a revision, in words; None when it is the program's own."""
    if found == HEAD:
        return None
    if found is None:
        return _problem(MISSING, "no schema", "Run `registry init`.")
    if found in REVISIONS:
        return _problem(OLDER, f"the older revision {found}", "Run `registry db upgrade`.")
    return _problem(NEWER, f"the newer revision {found}", "Upgrade the program; it must not touch a newer schema.")


def config(connection: Connection | None = None) -> Config:
    """Alembic's settings: where the scripts are, and the connection they run on."""
    from alembic.config import Config  # heavy, see above

    settings = Config(attributes={"connection": connection})
    settings.set_main_option("script_location", str(files("migrations")))
    return settings


def _migrate(connection: Connection) -> None:
    from alembic import command  # heavy, see above

    command.upgrade(config(connection), HEAD)


@contextmanager
def _reading(url: str) -> Iterator[Connection]:
    """A snapshot: every program that opens the registry looks at its schema, and waits for no writer to do so."""
    engine = engines.open_engine(url)
    with _begun(url, engine, engines.snapshot(engine)) as connection:
        yield connection


@contextmanager
def _writing(url: str) -> Iterator[Connection]:
    with turn(engines.sqlite_path(url), time.monotonic() + PATIENCE_S) as ours:
        if not ours:
            raise BUSY.as_error()
        engine = engines.open_engine(url, create=True)
        with _begun(url, engine, engine) as connection:
            yield connection


@contextmanager
def _begun(url: str, engine: Engine, begins: Engine) -> Iterator[Connection]:
    try:
        with begins.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise classify(error, engines.sqlite_path(url)).as_error() from error
    finally:
        engine.dispose()


def _problem(code: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=f"schema revision {HEAD}", observed=observed, hint=hint)
