"""Statements compiled once for each database and run by their text.

SQLAlchemy keeps compiled texts, but to find one it builds and walks the statement object each time, which costs more
than running it. Values go to the driver as they are: text, integers, bytes and null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from sqlalchemy import (
    JSON,
    ClauseElement,
    Connection,
    Dialect,
    Select,
    SQLColumnExpression,
    Table,
    Text,
    any_,
    bindparam,
    func,
    insert,
    select,
    tuple_,
)
from sqlalchemy import cast as cast_to
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import SQLCompiler

if TYPE_CHECKING:  # loading it takes longer than most commands on SQLite
    import psycopg

Cells = Sequence[Any]
Cell = str | int | bytes | None
Values = Mapping[str, Cell]
"""The cells of a row by column."""
COPY: Final = "COPY"
_STYLES: Final[dict[str, Literal["qmark", "format"]]] = {"sqlite": "qmark", "postgresql": "format"}


class Prepared:
    """A statement with named parameters; those that have a value in it, such as a limit, keep it."""

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._texts: dict[str, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {}

    def all(self, connection: Connection, **values: Cell) -> Sequence[Cells]:
        """Its rows."""
        text, order, fixed = self._text(connection.dialect)
        given = {**fixed, **values}
        return _rows(connection, text, tuple([given[name] for name in order]))

    def first(self, connection: Connection, **values: Cell) -> Cells | None:
        """Its first row, or None."""
        return next(iter(self.all(connection, **values)), None)

    def each(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run it once for each row of parameters."""
        text, order, _ = self._text(connection.dialect)
        connection.exec_driver_sql(text, [tuple(row[name] for name in order) for row in rows])

    def run(self, connection: Connection, values: Cells) -> None:
        """Run it with parameters in the order in which it mentions them; for each of several rows of them."""
        connection.exec_driver_sql(self._text(connection.dialect)[0], values)

    def in_order(self, connection: Connection, values: Sequence[Any]) -> Sequence[Cells]:
        """Its rows, the parameters given in the order in which it mentions them."""
        return _rows(connection, self._text(connection.dialect)[0], tuple(values))

    def _text(self, dialect: Dialect) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
        if dialect.name not in self._texts:
            positional = cast(type[DefaultDialect], type(dialect))(paramstyle=_STYLES[dialect.name])
            options = {"render_postcompile": True}
            made = cast(SQLCompiler, self._statement.compile(dialect=positional, compile_kwargs=options))
            self._texts[dialect.name] = str(made), tuple(made.positiontup or ()), dict(made.params)
        return self._texts[dialect.name]


def _rows(connection: Connection, text: str, values: Cells) -> Sequence[Cells]:
    """The driver's tuples: SQLAlchemy's rows, which know their columns' names, would cost as much again."""
    result = connection.exec_driver_sql(text, values)
    # not by the cursor alone: SQLite reads while it is fetched from, and its errors must come as SQLAlchemy's
    rows: Sequence[Cells] = result.cursor_strategy.fetchall(result, result.cursor)
    return rows


def copied(cursor: psycopg.Cursor[Any], statement: str, rows: Iterable[Cells]) -> bool:
    """Run a statement for many rows as a stream of them; False where it takes none."""
    if not statement.startswith(COPY):
        return False
    with cursor.copy(statement.encode()) as stream:
        for row in rows:
            stream.write_row(row)
    return True


class Picked:
    """Rows of a statement whose `column` is one of the keys that another one, `keys`, gives."""

    def __init__(
        self,
        statement: Select[*tuple[Any, ...]],
        column: SQLColumnExpression[Any],
        keys: Select[tuple[str]],
        keys_of_postgresql: Select[tuple[str]] | None = None,
    ) -> None:
        # an array: of a sub-query the planner would guess the size, and might read the whole table instead
        array = func.array((keys if keys_of_postgresql is None else keys_of_postgresql).scalar_subquery())
        self._prepared = {
            "sqlite": Prepared(statement.where(column.in_(keys))),
            "postgresql": Prepared(statement.where(column == any_(array))),
        }

    def rows(self, connection: Connection, **values: Cell) -> Sequence[Cells]:
        """The rows, in any order."""
        return self._prepared[connection.dialect.name].all(connection, **values)


class Chosen:
    """Rows of a statement whose `column` is one of any number of keys, which go to the database as one JSON array."""

    def __init__(self, statement: Select[*tuple[Any, ...]], column: SQLColumnExpression[Any]) -> None:
        keys = bindparam("keys", type_=Text())
        of_sqlite = func.json_each(keys).table_valued("value", name="json_each")
        of_postgresql = func.json_array_elements_text(cast_to(keys, JSON)).table_valued("value")
        self._picked = Picked(statement, column, select(of_sqlite.c.value), select(of_postgresql.c.value))

    def rows(self, connection: Connection, keys: Iterable[str]) -> Sequence[Cells]:
        """The rows, in any order."""
        return self._picked.rows(connection, keys=json.dumps(list(keys)))


class Insertion:
    """Insert rows given as their cells in column order; the order of columns is `columns`."""

    def __init__(self, table: Table) -> None:
        self.columns: tuple[str, ...] = tuple(column.name for column in table.columns)
        self._one = Prepared(insert(table))
        quoted = ", ".join([f'"{name}"' for name in self.columns])
        self._copy = f"{COPY} {table.name} ({quoted}) FROM STDIN"

    def each(self, connection: Connection, rows: Sequence[Cells]) -> None:
        """Insert every row."""
        if len(rows) > 1 and connection.dialect.name == "postgresql":
            # its driver would run `executemany` row by row; see `copied`
            connection.exec_driver_sql(self._copy, list(rows))
        else:
            self._one.run(connection, list(rows))


@lru_cache
def insertion(table: Table) -> Insertion:
    """Insert into a table."""
    return Insertion(table)


@lru_cache(maxsize=4096)
def known_keys(table: Table, count: int) -> Prepared:
    """Which of `count` primary keys are there; their cells are given in order."""
    columns = list(table.primary_key.columns)
    return Prepared(select(*columns).where(tuple_(*columns).in_([("",) * len(columns)] * count)))
