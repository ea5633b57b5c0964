"""Guards: triggers that refuse to change, remove or replace a row of an append-only table.

They catch mistakes; against somebody who can drop triggers stands `verify`. Each upgrade installs them again.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Table, text

from registry.db.rows import AppendOnlyRow, AuditEventRow, Row
from registry.db.rows.core import table_of, unique_keys
from schemas.errors import Problem

_FUNCTION: Final = "registry_append_only"
_FUNCTION_BODY: Final = (
    "BEGIN RAISE EXCEPTION 'append-only: %', TG_TABLE_NAME USING ERRCODE = 'restrict_violation'; END"
)


def guarded_tables() -> tuple[Table, ...]:
    """Every append-only table, parents before children."""
    guarded = (AppendOnlyRow, AuditEventRow)
    tables = {table_of(mapper.class_) for mapper in Row.registry.mappers if issubclass(mapper.class_, guarded)}
    return tuple(table for table in Row.metadata.sorted_tables if table in tables)


def install(connection: Connection) -> None:
    """Put every guard in place, replacing what is there."""
    remove(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(
            text(f"CREATE OR REPLACE FUNCTION {_FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $${_FUNCTION_BODY}$$")
        )
    for statement in expected(connection.dialect.name).values():
        connection.execute(text(statement))


def remove(connection: Connection) -> None:
    """Take every guard away, for an upgrade that must touch old rows; only inside the transaction of that upgrade."""
    for name, table in _present(connection):
        suffix = f" ON {table}" if connection.dialect.name == "postgresql" else ""
        connection.execute(text(f"DROP TRIGGER {name}{suffix}"))


def check(connection: Connection) -> tuple[Problem, ...]:
    """One problem for each guard that is missing, switched off or has another text."""
    found = _texts(connection)
    wanted = expected(connection.dialect.name)
    problems = [_problem(name, found.get(name)) for name, statement in wanted.items() if found.get(name) != statement]
    if connection.dialect.name == "postgresql":
        body = connection.scalar(text("SELECT prosrc FROM pg_proc WHERE proname = :name"), {"name": _FUNCTION})
        if body != _FUNCTION_BODY:
            problems.append(_problem(_FUNCTION, body))
    return tuple(problems)


def expected(dialect: str) -> dict[str, str]:
    """The statement of each guard by its name, exactly as the database keeps it."""
    build = _postgresql if dialect == "postgresql" else _sqlite
    return {name: statement for table in guarded_tables() for name, statement in build(table).items()}


def _sqlite(table: Table) -> dict[str, str]:
    name = table.name
    refuse = f"BEGIN SELECT RAISE(ABORT, 'append-only: {name}'); END"
    # REPLACE removes the old row without a delete trigger unless recursive_triggers is on, so the insert itself is
    # refused; a rowid nobody gave reads -1 here, which no row has
    keys = {**unique_keys(table), f"rowid_{name}": ("rowid",)}
    taken = " ".join(_taken(name, constraint, columns) for constraint, columns in keys.items())
    return {
        f"guard_{name}_update": f"CREATE TRIGGER guard_{name}_update BEFORE UPDATE ON {name} {refuse}",
        f"guard_{name}_delete": f"CREATE TRIGGER guard_{name}_delete BEFORE DELETE ON {name} {refuse}",
        f"guard_{name}_insert": f"CREATE TRIGGER guard_{name}_insert BEFORE INSERT ON {name} BEGIN {taken} END",
    }


def _taken(table: str, constraint: str, columns: tuple[str, ...]) -> str:
    same = " AND ".join(f'"{column}" = NEW."{column}"' for column in columns)
    return f"SELECT RAISE(ABORT, 'exists: {constraint}') WHERE EXISTS (SELECT 1 FROM {table} WHERE {same});"  # noqa: S608


def _postgresql(table: Table) -> dict[str, str]:
    name = table.name
    rows, whole = f"guard_{name}_rows", f"guard_{name}_truncate"
    run = f"EXECUTE FUNCTION {_FUNCTION}()"
    return {
        rows: f"CREATE TRIGGER {rows} BEFORE DELETE OR UPDATE ON {name} FOR EACH ROW {run}",
        whole: f"CREATE TRIGGER {whole} BEFORE TRUNCATE ON {name} FOR EACH STATEMENT {run}",
    }


def _present(connection: Connection) -> list[tuple[str, str]]:
    query = (
        "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgname LIKE 'guard\\_%'"
        if connection.dialect.name == "postgresql"
        else "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'guard\\_%' ESCAPE '\\'"
    )
    return [(row[0], row[1]) for row in connection.execute(text(query))]


def _texts(connection: Connection) -> dict[str, str]:
    query = (
        "SELECT tgname, CASE tgenabled WHEN 'O' THEN pg_get_triggerdef(oid, true) ELSE 'disabled' END "
        "FROM pg_trigger WHERE NOT tgisinternal"
        if connection.dialect.name == "postgresql"
        else "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    )
    return {row[0]: row[1] for row in connection.execute(text(query))}


def _problem(name: str, observed: str | None) -> Problem:
    return Problem(
        code="GUARD_MISSING" if observed is None else "GUARD_CHANGED",
        path=("guards", name),
        expected="the guard of this release",
        observed="nothing" if observed is None else observed,
        hint="Run `registry db upgrade`, which installs the guards again, then `registry verify`.",
    )
