"""Names, versions, aliases and references."""

from __future__ import annotations

from functools import partial

import pytest

from registry.db import Database, aliases, names, purges, refs
from registry.db.names import Assigned
from registry.errors import ConflictError, NotFoundError, ProblemError, PurgedError
from schemas.names import parse_ref
from tests.registry.db.examples import ME, adapter, base, publish, store


def assign(database: Database, name: str, number: int, version: int | None = None) -> Assigned:
    """Register an adapter under a name."""
    found = adapter(number)
    store(database, base(), found)
    return database.change("add", ME, lambda change: names.assign(change, name, "adapter", found.digest, version))


def purge(database: Database, number: int) -> None:
    """Set the tombstone of an adapter."""
    database.change("purge", ME, lambda change: purges.put(change, adapter(number).digest, "asked"))


def test_versions_count_up_and_the_same_digest_keeps_its_own(database: Database) -> None:
    assert assign(database, "qa", 1) == Assigned(1, created=True)
    assert assign(database, "qa", 2) == Assigned(2, created=True)
    assert assign(database, "qa", 1) == Assigned(1, created=False)
    assert assign(database, "qa", 1, version=1) == Assigned(1, created=False)
    assert assign(database, "qa", 7, version=7) == Assigned(7, created=True)
    assert assign(database, "qa", 8) == Assigned(8, created=True)
    with database.reading() as reader:
        assert names.newest(reader, "qa").digest == adapter(8).digest
        assert names.at(reader, "qa", 2).digest == adapter(2).digest
        assert [row.version for row in names.versions(reader, "qa", limit=2).items] == [8, 7]
        assert [row.name for row in names.of(reader, adapter(1).digest)] == ["qa"]
        assert [row.name for row in names.page(reader, kind="adapter").items] == ["qa"]
        assert names.page(reader, kind="base").items == ()


def test_a_taken_version_is_refused_with_both_digests(database: Database) -> None:
    assign(database, "qa", 1)
    with pytest.raises(ConflictError) as caught:
        assign(database, "qa", 2, version=1)
    assert caught.value.code == "VERSION_TAKEN"
    assert adapter(2).digest in caught.value.problems[0].expected
    assert caught.value.problems[0].observed == adapter(1).digest


def test_a_digest_is_not_given_a_second_version(database: Database) -> None:
    assign(database, "qa", 1)
    with pytest.raises(ConflictError) as caught:
        assign(database, "qa", 1, version=5)
    assert caught.value.code == "DIGEST_HAS_VERSION"


def test_a_name_belongs_to_one_kind(database: Database) -> None:
    assign(database, "qa", 1)
    with pytest.raises(ConflictError) as caught:
        database.change("add", ME, lambda change: names.assign(change, "qa", "base", base().digest))
    assert caught.value.code == "NAME_TAKEN_BY_KIND"


def test_a_purged_version_is_burned_and_the_name_with_its_last(database: Database) -> None:
    assign(database, "qa", 1)
    assign(database, "qa", 2)
    purge(database, 2)
    with database.reading() as reader:
        assert names.newest(reader, "qa").version == 1
        with pytest.raises(PurgedError) as caught:
            names.at(reader, "qa", 2)
    assert caught.value.code == "VERSION_PURGED"
    codes = []
    for number, version in ((3, 2), (2, None)):
        with pytest.raises(PurgedError) as refused:
            assign(database, "qa", number, version)
        codes.append(refused.value.code)
    assert codes == ["VERSION_PURGED", "MANIFEST_PURGED"]
    assert assign(database, "qa", 4) == Assigned(3, created=True)
    for number in (1, 4):
        purge(database, number)
    with pytest.raises(PurgedError) as burned:
        assign(database, "qa", 5)
    assert burned.value.code == "NAME_PURGED"
    with database.reading() as reader, pytest.raises(PurgedError) as gone:
        names.newest(reader, "qa")
    assert gone.value.code == "NAME_PURGED"


def test_an_alias_is_where_its_newest_event_points(database: Database) -> None:
    for number in (1, 2):
        assign(database, "qa", number)
    for version in (1, 2, 1):
        database.change("alias", ME, partial(aliases.move, name="qa", alias="stable", version=version))
    with database.reading() as reader:
        assert aliases.current(reader, "qa", "stable").version == 1
        assert [row.version for row in aliases.history(reader, "qa", "stable").items] == [1, 2, 1]
        assert [(row.alias, row.version) for row in aliases.all_current(reader, "qa")] == [("stable", 1)]


def test_an_alias_of_a_missing_version_is_refused(database: Database) -> None:
    assign(database, "qa", 1)
    with pytest.raises(NotFoundError) as caught:
        database.change("alias", ME, lambda change: aliases.move(change, "qa", "stable", 2))
    assert caught.value.code == "VERSION_UNKNOWN"


def test_references_resolve_to_digests(database: Database) -> None:
    for number in (1, 2):
        assign(database, "qa", number)
    database.change("alias", ME, lambda change: aliases.move(change, "qa", "stable", 1))
    publish(database, "live", adapter(2).digest)
    publish(database, "live", adapter(1).digest)
    wanted = {
        "qa": 2,
        "qa@1": 1,
        "qa@stable": 1,
        "channel:live": 1,
        "channel:live@g1": 2,
        adapter(2).digest: 2,
        adapter(2).digest[:24]: 2,
    }
    with database.reading() as reader:
        found = {text: refs.resolve(reader, parse_ref(text)) for text in wanted}
    assert found == {text: adapter(number).digest for text, number in wanted.items()}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nobody", "NAME_UNKNOWN"),
        ("qa@9", "VERSION_UNKNOWN"),
        ("nobody@9", "NAME_UNKNOWN"),
        ("qa@stable", "ALIAS_UNKNOWN"),
        ("blake3:00000000", "MANIFEST_UNKNOWN"),
        ("channel:none", "CHANNEL_UNKNOWN"),
        ("channel:none@g1", "CHANNEL_UNKNOWN"),
        ("channel:live@g9", "GENERATION_UNKNOWN"),
        ("channel:live", "REF_NOT_SINGLE"),
    ],
)
def test_references_to_nothing_say_what_is_missing(database: Database, text: str, code: str) -> None:
    for number in (1, 2):
        assign(database, "qa", number)
    publish(database, "live", adapter(1).digest, adapter(2).digest)
    with database.reading() as reader, pytest.raises(ProblemError) as caught:
        refs.resolve(reader, parse_ref(text))
    assert caught.value.code == code
