"""Lineage of an artifact with 200 ancestors among 10 thousand and among 1 million manifests.

Targets, on both sizes: no query plan scans a table, p95 under 25 ms for the whole answer, names included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import quantiles
from time import perf_counter
from typing import Any

from blake3 import blake3
from sqlalchemy import Engine, Table, create_engine, event, insert

from registry.db import Database, guards, migrate
from registry.db.rows import EdgeRow, ManifestRow, NameRow, NameVersionRow
from registry.db.rows.core import table_of
from registry.db.session import batches
from registry.service import look
from registry.service.context import Context
from registry.storage import FolderStore
from registry.wiring import LazyComposer
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
        seconds = []
        for _ in range(ASKED):
            start = perf_counter()
            found = look.line(context, digest(ROOT), "up")
            seconds.append(perf_counter() - start)
        assert len(found.nodes) == 1 + LAYERS * WIDTH
    p95 = quantiles(seconds, n=20)[-1] * 1000
    told = f"scans: {', '.join(scans)}" if scans else "no scan"
    return (
        f"lineage {url.partition(':')[0].partition('+')[0]} {size} manifests: {len(found.nodes) - 1} ancestors, "
        f"{told}, p95 {p95:.1f} ms (target {TARGET_MS:.0f} ms)"
    )


def fill(url: str, size: int) -> None:
    """The artifact, its ancestors, and as many others beside them, each made from two."""
    engine = create_engine(url)
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            # keys come in random order: without room for the indexes every row would move pages in and out
            connection.exec_driver_sql("PRAGMA cache_size = -800000")
            connection.exec_driver_sql("PRAGMA synchronous = OFF")
        guards.remove(connection)
        contents = (
            (ManifestRow, manifests(size)),
            (EdgeRow, edges(size)),
            (NameRow, [NAME]),
            (NameVersionRow, versions(size)),
        )
        for kind, rows in contents:
            for batch in batches(rows, 10_000):
                connection.execute(insert(table_of(kind)), batch)
        guards.install(connection)
        connection.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    engine.dispose()


def manifests(size: int) -> Iterator[dict[str, Any]]:
    """Rows with made-up digests; nothing here reads their bytes."""
    for number, name in enumerate(names(size)):
        yield {
            "digest": digest(name),
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
    for number, name in enumerate(names(size), 1):
        yield {**NAME, "version": number, "digest": digest(name)}


def edges(size: int) -> Iterator[dict[str, Any]]:
    """Which of them was made from which; half of the others from an ancestor of the artifact."""
    draw = Random(0)
    yield from (edge(ROOT, f"{LAYERS - 1}/{place}") for place in range(WIDTH))
    for layer in range(1, LAYERS):
        for place in range(WIDTH):
            yield from (edge(f"{layer}/{place}", f"{layer - 1}/{(place + n) % WIDTH}") for n in range(PARENTS))
    for number in range(size - 1 - LAYERS * WIDTH):
        yield edge(str(number), f"0/{draw.randrange(WIDTH)}")
        if number:
            yield edge(str(number), str(draw.randrange(number)))


def edge(child: str, parent: str) -> dict[str, Any]:
    """One row."""
    return {
        "child": digest(child),
        "parent": digest(parent),
        "role": "member",
        "position": 0,
        "change_id": f"{0:032}",
    }


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
