"""No request path scans a table: the plans of both databases say so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, event, text

from registry.db import (
    Database,
    Reader,
    aliases,
    audit,
    blobs,
    channels,
    files,
    jobs,
    leases,
    lineage,
    manifests,
    names,
    purges,
    records,
    statements,
    tensors,
    tokens,
    webhooks,
)
from registry.db.manifests import ManifestFilter
from tests.registry.db.examples import ME, adapter, base, compose, digest, publish, store

TOKEN = "WyIyMDI2IiwiYmxha2UzOjAiXQ"  # ["2026","blake3:0"]
REQUESTS: dict[str, Callable[[Reader], object]] = {
    "prefix": lambda r: manifests.candidates(r, "blake3:0123abcd"),
    "manifest": lambda r: manifests.find(r, digest("x")),
    "kind of a manifest": lambda r: manifests.kind_of(r, digest("x")),
    "bases of adapters": lambda r: manifests.bases_of(r, [adapter(1).digest]),
    "list": lambda r: manifests.page(r, ManifestFilter(), TOKEN),
    "list by kind": lambda r: manifests.page(r, ManifestFilter(kind="adapter"), TOKEN),
    "list by base": lambda r: manifests.page(r, ManifestFilter(base=base().digest), TOKEN),
    "list by base and kind": lambda r: manifests.page(r, ManifestFilter(base=base().digest, kind="base"), TOKEN),
    "list by family": lambda r: manifests.page(r, ManifestFilter(family="lora"), TOKEN),
    "list by method": lambda r: manifests.page(r, ManifestFilter(method="cat"), TOKEN),
    "list by outcome": lambda r: manifests.page(r, ManifestFilter(outcome="refused"), TOKEN),
    "list by label": lambda r: manifests.page(r, ManifestFilter(labels=(("team", "red"),)), TOKEN),
    "ancestors": lambda r: lineage.ancestors(r, adapter(9).digest),
    "descendants": lambda r: lineage.descendants(r, adapter(1).digest),
    "live": lambda r: lineage.live(r, adapter(1).digest),
    "newest of a name": lambda r: names.newest(r, "qa"),
    "version": lambda r: names.at(r, "qa", 1),
    "names of a digest": lambda r: names.of(r, adapter(1).digest),
    "versions": lambda r: names.versions(r, "qa"),
    "names": lambda r: names.page(r, "adapter"),
    "aliases": lambda r: aliases.all_current(r, "qa"),
    "alias history": lambda r: aliases.history(r, "qa", "stable"),
    "head": lambda r: channels.head(r, "live"),
    "generation": lambda r: channels.at(r, "live", 1),
    "history": lambda r: channels.history(r, "live", "WzVd"),
    "channels": lambda r: channels.page(r, "WyJhIl0"),
    "blob by sha": lambda r: blobs.by_sha256(r, "sha256:0"),
    "presence": lambda r: blobs.present(r, [digest("x")]),
    "needed blobs": lambda r: blobs.referenced(r, [digest("x"), digest("y")]),
    "files": lambda r: files.packagings(r, adapter(1).digest),
    "tensors": lambda r: tensors.locations(r, [digest("x"), digest("y")]),
    "base files": lambda r: tensors.base_files(r, base().digest),
    "labels": lambda r: statements.labels(r, adapter(1).digest),
    "yanks": lambda r: statements.yanked(r, [adapter(1).digest, adapter(2).digest]),
    "statements": lambda r: statements.of(r, adapter(1).digest),
    "purges": lambda r: purges.purged(r, [adapter(1).digest]),
    "measurements": lambda r: records.measurements(r, adapter(1).digest),
    "token": lambda r: tokens.find(r, digest("s")),
    "jobs": lambda r: jobs.page(r, "queued"),
    "leases": lambda r: leases.of(r, "live"),
    "holders of a file": lambda r: files.holders(r, digest("x")),
    "messages that are due": lambda r: webhooks.due(r),
    "messages to a webhook": lambda r: webhooks.deliveries(r, "w", TOKEN),
    "events": lambda r: audit.page(r, "WzVd"),
}


@pytest.fixture
def filled(database: Database) -> Database:
    """A little of everything, so that functions get past their first statement."""
    store(database, base(), adapter(1), adapter(2))
    compose(database, adapter(9), adapter(1), adapter(2))
    database.change("name", ME, lambda change: names.assign(change, "qa", "adapter", adapter(1).digest))
    publish(database, "live", adapter(9).digest)
    return database


@contextmanager
def recorded() -> Iterator[list[tuple[str, object]]]:
    """The statements any engine executes meanwhile."""
    seen: list[tuple[str, object]] = []

    def note(_c: Connection, _k: object, statement: str, parameters: object, _x: object, _m: bool) -> None:
        if re.match(r"\s*(SELECT|WITH)\b", statement):
            seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def scans(connection: Connection, statement: str, parameters: object) -> list[str]:
    """The tables a statement would read from end to end."""
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()  # type: ignore[arg-type]
        return [row[3] for row in rows if re.match(r"SCAN (?!CONSTANT|\(|reached\b|json_each)", row[3])]
    plan = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar()  # type: ignore[arg-type]
    return list(_sequential(json.loads(plan) if isinstance(plan, str) else plan))


def _sequential(plan: object) -> Iterator[str]:
    if isinstance(plan, list):
        for item in plan:
            yield from _sequential(item)
    elif isinstance(plan, dict):
        # an index read from end to end is a scan too
        whole = str(plan.get("Node Type")).startswith("Index") and "Index Cond" not in plan
        if plan.get("Node Type") == "Seq Scan" or (whole and "Relation Name" in plan):
            yield str(plan["Relation Name"])
        for value in plan.values():
            yield from _sequential(value)


def test_a_scan_would_be_seen(filled: Database) -> None:
    with filled.reading() as reader:
        connection = reader.session.connection()
        assert scans(connection, "SELECT digest FROM manifest WHERE family <> 'x'", ())
        assert scans(connection, "SELECT digest FROM manifest ORDER BY digest", ())


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_scans_no_table(filled: Database, request_: str) -> None:
    with filled.reading() as reader:
        if filled.url.startswith("postgresql"):
            # small tables are read whole because that is cheaper; asked for an index, the planner must find one
            reader.session.execute(text("SET LOCAL enable_seqscan = off"))
        with recorded() as seen:
            REQUESTS[request_](reader)
        assert seen
        found = [(statement, scans(reader.session.connection(), statement, params)) for statement, params in seen]
    assert [(statement, tables) for statement, tables in found if tables] == []
