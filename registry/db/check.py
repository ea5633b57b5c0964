"""`registry db check`: the schema, the guards and the soundness of the database itself."""

from __future__ import annotations

from sqlalchemy import Connection

from registry.db import guards, migrate
from registry.db.database import Database
from schemas.errors import Problem


def check(url: str) -> tuple[Problem, ...]:
    """Everything that is wrong with a database; empty when nothing is.

    Raises:
        UnavailableError: it cannot be reached.
    """
    problem = migrate.schema_problem(migrate.current(url))
    if problem is not None:
        return (problem,)
    with Database(url) as database, database.reading() as reader:
        connection = reader.session.connection()
        return (*guards.check(connection), *_soundness(connection))


def _soundness(connection: Connection) -> list[Problem]:
    if connection.dialect.name != "sqlite":
        return []
    rows = connection.exec_driver_sql("PRAGMA integrity_check").all()
    problems = [_problem("DATABASE_DAMAGED", str(row[0])) for row in rows if row[0] != "ok"]
    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    problems += [_problem("FOREIGN_KEY_BROKEN", f"a row of {row[0]} without its {row[2]}") for row in orphans]
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    if mode != "wal":
        problems.append(_problem("JOURNAL_MODE", f"journal mode {mode}"))
    return problems


def _problem(code: str, observed: str) -> Problem:
    return Problem(
        code=code, expected="a sound database in WAL mode", observed=observed, hint="Restore it from a backup."
    )
