"""Lineage of an artifact with 200 ancestors among 10 thousand and among 1 million manifests.

Targets, on both sizes: no query plan scans a table, p95 under 25 ms for the whole answer, names included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Any

import psycopg
from blake3 import blake3
from sqlalchemy import Connection, Engine, Table, create_engine, event

from registry.db import Database, guards, migrate
from registry.db.rows import EdgeRow, ManifestRow, NameRow, NameVersionRow
from registry.db.rows.core import table_of
from registry.db.session import batches
from registry.service import look
from registry.service.context import Context
from registry.storage import FolderStore
from registry.wiring import LazyComposer
from tests.benchmarks.measure import load
from tests.support.databases import PostgresServer

SIZES = (10_000, 1_000_000)
LAYERS, WIDTH, PARENTS = 10, 20, 3
"""The ancestors: layers of as many manifests, each made from some of the layer below."""
ASKED = 200
TARGET_MS = 25.0
ROOT = "root"
CREATED = "2025-01-01T00:00:00.000000Z"
NAME = {"name": "many", "kind": "adapter", "created": CREATED, "change_id": f"{0:032}"}


def run() -> Iterator[str]:
    """One line a database and size."""
    server = PostgresServer()
    try:
        for size in SIZES:
            with tempfile.TemporaryDirectory(prefix="bench-lineage-") as folder:
                yield measured(f"sqlite:///{Path(folder, 'registry.db')}", Path(folder), size)
                name = server.create()
                yield measured(server.url(name), Path(folder), size)
                server.drop(name)
    finally:
        server.stop()


def measured(url: str, folder: Path, size: int) -> str:
    """Fill a database, look at the plans, ask many times."""
    migrate.upgrade(url)
    fill(url, size)
    with Database(url) as database:
        context = Context(database, FolderStore(folder / "store"), LazyComposer(1, 2**30), "bench")
        scans = scanning(context)
        seconds, processor = [], process_time()
        for _ in range(ASKED):
            start = perf_counter()
            found = look.line(context, digest(ROOT), "up")
            seconds.append(perf_counter() - start)
        processor = (process_time() - processor) / ASKED * 1000
        assert len(found.nodes) == 1 + LAYERS * WIDTH
    p95 = quantiles(seconds, n=20)[-1] * 1000
    told = f"scans: {', '.join(scans)}" if scans else "no scan"
    return (
        f"lineage {url.partition(':')[0].partition('+')[0]} {size} manifests: {len(found.nodes) - 1} ancestors, "
        f"{told}, p95 {p95:.1f} ms (target {TARGET_MS:.0f} ms), median {median(seconds) * 1000:.1f} ms, "
        f"{processor:.1f} ms of processor, {load()}"
    )


def fill(url: str, size: int) -> None:
    """The artifact, its ancestors, and as many others beside them, each made from two.

    Rows come in the order of their keys and indexes are built afterwards: rows in random order would move pages of
    every index in and out.
    """
    engine = create_engine(url)
    contents = {ManifestRow: manifests(size), EdgeRow: edges(size), NameRow: [NAME], NameVersionRow: versions(size)}
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA journal_mode = OFF")  # a write-ahead log would hold every page again
            connection.exec_driver_sql("PRAGMA synchronous = OFF")
            connection.exec_driver_sql("PRAGMA cache_size = -800000")
        else:
            connection.exec_driver_sql("SET session_replication_role = replica")
        guards.remove(connection)
        for kind, rows in contents.items():
            table = table_of(kind)
            indexes = sorted(table.indexes, key=lambda index: str(index.name))
            for index in indexes:
                index.drop(connection)
            insert_all(connection, table, rows)
            for index in indexes:
                index.create(connection)
        guards.install(connection)
        connection.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            connection.exec_driver_sql("ANALYZE")
        else:
            connection.exec_driver_sql("VACUUM ANALYZE")  # as its own worker does some time after so many rows
            connection.exec_driver_sql("CHECKPOINT")  # or pages of the filling are written while it is asked
    engine.dispose()


def insert_all(connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    """Insert by the fastest way each driver has."""
    columns = [column.name for column in table.columns]
    cells = (tuple(row[name] for name in columns) for row in rows)
    listed = ", ".join(f'"{name}"' for name in columns)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        for batch in batches(cells, 10_000):
            connection.exec_driver_sql(f"INSERT INTO {table.name} ({listed}) VALUES ({marks})", batch)
        return
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({listed}) FROM STDIN".encode()) as copy:
        for row in cells:
            copy.write_row(row)


def manifests(size: int) -> Iterator[dict[str, Any]]:
    """Rows with made-up digests; nothing here reads their bytes."""
    for number, name in enumerate(sorted(map(digest, names(size)))):
        yield {
            "digest": name,
            "kind": "adapter",
            "data": b"{}",
            "created": f"2025-01-01T00:00:00.{number % 1_000_000:06}Z",
            "base": digest("0/0"),
            "family": "lora",
            "method": None,
            "outcome": None,
            "change_id": f"{number // 10:032}",
        }


def names(size: int) -> Iterator[str]:
    """The artifact, the ancestors by layer and place, the others by number."""
    yield ROOT
    yield from (f"{layer}/{place}" for layer in range(LAYERS) for place in range(WIDTH))
    yield from (str(number) for number in range(size - 1 - LAYERS * WIDTH))


def versions(size: int) -> Iterator[dict[str, Any]]:
    """Every manifest is a version of one name."""
    for number, name in enumerate(sorted(map(digest, names(size))), 1):
        yield {**NAME, "version": number, "digest": name}


def edges(size: int) -> list[dict[str, Any]]:
    """Which of them was made from which; half of the others from an ancestor of the artifact."""
    draw = Random(0)
    pairs = [(ROOT, f"{LAYERS - 1}/{place}") for place in range(WIDTH)]
    for layer in range(1, LAYERS):
        for place in range(WIDTH):
            pairs += [(f"{layer}/{place}", f"{layer - 1}/{(place + n) % WIDTH}") for n in range(PARENTS)]
    for number in range(size - 1 - LAYERS * WIDTH):
        pairs.append((str(number), f"0/{draw.randrange(WIDTH)}"))
        if number:
            pairs.append((str(number), str(draw.randrange(number))))
    return [
        {"child": child, "parent": parent, "role": "member", "position": 0, "change_id": f"{0:032}"}
        for child, parent in sorted((digest(child), digest(parent)) for child, parent in pairs)
    ]


@lru_cache(maxsize=2**21)
def digest(name: str) -> str:
    """A digest of the right form."""
    return f"blake3:{blake3(name.encode()).hexdigest()}"


def scanning(context: Context) -> list[str]:
    """The steps of the plans of all statements of one lineage that read a whole table."""
    with listening() as asked:
        look.line(context, digest(ROOT), "up")
    tables = ManifestRow.metadata.tables.values()
    with context.database.reading() as reader:
        connection = reader.session.connection()
        explain = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
        plans = [connection.exec_driver_sql(explain + text, values).all() for text, values in asked]
    return [str(step[-1]) for plan in plans for step in plan if scans(str(step[-1]), tables)]


def scans(step: str, tables: Iterable[Table]) -> bool:
    """Whether a step of a plan reads a table or an index from end to end."""
    words = step.replace('"', "").split()
    if "SCAN" in words:
        return words[words.index("SCAN") + 1] in {table.name for table in tables}
    return "Seq Scan on" in step


@contextmanager
def listening() -> Iterator[list[tuple[str, Any]]]:
    """Every SELECT with its parameters, as the driver gets it."""
    asked: list[tuple[str, Any]] = []

    def note(*call: Any) -> None:
        _, _, statement, parameters, _, _ = call
        if statement.startswith(("SELECT", "WITH")):
            asked.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


if __name__ == "__main__":
    print("\n".join(run()))
