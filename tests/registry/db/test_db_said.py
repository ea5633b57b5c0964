"""Statements, labels, yanks, measurements, tokens, purges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from registry.db import Database, purges, records, statements, tokens
from registry.db.session import stamp
from registry.errors import ConflictError, NotFoundError
from schemas.canonical import JsonObject
from schemas.publication import StatementManifest
from tests.registry.db.examples import ME, adapter, base, digest, statement, store

SUBJECT = adapter(1).digest


@pytest.fixture(autouse=True)
def stored(database: Database) -> None:
    """Two adapters to speak about."""
    store(database, base(), adapter(1), adapter(2))


def say(database: Database, said: StatementManifest) -> bool:
    """Store a statement."""
    return database.change("say", ME, lambda change: statements.put(change, said))


def test_statements_chain_and_the_newest_counts(database: Database) -> None:
    first = statement(SUBJECT, "licence", {"spdx": "MIT"})
    second = statement(SUBJECT, "licence", {"spdx": "Apache-2.0"}, first)
    third = statement(SUBJECT, "licence", {"spdx": "MIT"}, second)
    assert [say(database, said) for said in (first, second, third, first)] == [True, True, True, False]
    with database.reading() as reader:
        assert statements.newest(reader, SUBJECT, "licence") == third
        assert statements.newest(reader, SUBJECT, "note") is None
        assert statements.of(reader, SUBJECT) == (first, second, third)


def test_a_statement_that_skips_another_is_stale(database: Database) -> None:
    first = statement(SUBJECT, "note", {"text": "one"})
    say(database, first)
    for stale in (statement(SUBJECT, "note", {"text": "two"}), statement(SUBJECT, "licence", {"spdx": "MIT"}, first)):
        with pytest.raises(ConflictError) as caught:
            say(database, stale)
        assert caught.value.code == "STATEMENT_STALE"


def test_labels_are_set_changed_and_removed(database: Database) -> None:
    first = statement(SUBJECT, "label", {"team": "red", "stage": "draft"})
    second = statement(SUBJECT, "label", {"team": None, "stage": "final"}, first)
    say(database, first)
    with database.reading() as reader:
        assert statements.labels(reader, SUBJECT) == {"team": "red", "stage": "draft"}
    say(database, second)
    with database.reading() as reader:
        assert statements.labels(reader, SUBJECT) == {"stage": "final"}
        assert statements.labels(reader, adapter(2).digest) == {}


def test_a_yank_stands_until_it_is_taken_back(database: Database) -> None:
    both = [SUBJECT, adapter(2).digest]
    first = statement(SUBJECT, "yank", {"reason": "broken"})
    say(database, first)
    with database.reading() as reader:
        assert statements.yanked(reader, both) == {SUBJECT}
    say(database, statement(SUBJECT, "yank", {"yanked": False}, first))
    with database.reading() as reader:
        assert statements.yanked(reader, both) == frozenset()


def test_measurements_and_run_records_are_kept_in_order(database: Database) -> None:
    bodies: list[JsonObject] = [{"error": 1.25e-7}, {"error": 0.5, "modules": ["a", "b"]}]
    for body in bodies:
        database.change("measure", ME, partial(records.put_measurement, subject=SUBJECT, body=body))
    database.change("run", ME, lambda change: records.put_run_record(change, SUBJECT, {"seconds": 2.5}))
    with database.reading() as reader:
        assert list(records.measurements(reader, SUBJECT)) == bodies
        assert records.run_records(reader, SUBJECT) == ({"seconds": 2.5},)
        assert records.measurements(reader, adapter(2).digest) == ()


def test_a_token_is_found_by_its_hash_until_revoked(database: Database) -> None:
    permissions: JsonObject = {"publish": ["support"]}
    row = database.change("token", ME, lambda change: tokens.create(change, "ci", permissions, digest("s"), None))
    with database.reading() as reader:
        found = tokens.find(reader, digest("s"))
        assert found is not None
        assert (found.token, found.principal, found.permissions) == (row.token, "ci", permissions)
        assert tokens.find(reader, digest("other")) is None
    ended = [database.change("token", ME, lambda change: tokens.revoke(change, row.token)) for _ in range(2)]
    assert ended == [True, False]
    with database.reading() as reader:
        assert tokens.find(reader, digest("s")) is None
        assert [item.token for item in tokens.page(reader).items] == [row.token]
        assert tokens.revoked(reader, [row.token, "other"]) == {row.token}


def test_a_token_ends_at_its_time(database: Database) -> None:
    for secret, hours in (("early", -1), ("late", 1)):
        until = stamp(datetime.now(UTC) + timedelta(hours=hours))
        database.change(
            "token",
            ME,
            partial(tokens.create, principal="ci", permissions={}, secret_hash=digest(secret), expires=until),
        )
    with database.reading() as reader:
        assert tokens.find(reader, digest("early")) is None
        assert tokens.find(reader, digest("late")) is not None


def test_revoking_an_unknown_token_is_not_found(database: Database) -> None:
    with pytest.raises(NotFoundError) as caught:
        database.change("token", ME, lambda change: tokens.revoke(change, "nobody"))
    assert caught.value.code == "TOKEN_UNKNOWN"


def test_a_purge_is_a_tombstone_set_once(database: Database) -> None:
    put = [database.change("purge", ME, lambda change: purges.put(change, SUBJECT, "asked")) for _ in range(2)]
    assert put == [True, False]
    with database.reading() as reader:
        found = purges.find(reader, SUBJECT)
        assert found is not None
        assert found.reason == "asked"
        assert purges.purged(reader, [SUBJECT, adapter(2).digest]) == {SUBJECT}
