"""Generations: without gaps, compare-and-append, paged history."""

from __future__ import annotations

import pytest

from registry.db import Change, Database, audit, channels, manifests
from registry.errors import NotFoundError, StaleHeadError
from schemas.publication import PublicationManifest
from tests.registry.db.examples import ME, adapter, base, digest, next_publication, publish, store


@pytest.fixture(autouse=True)
def stored(database: Database) -> None:
    """Two adapters to publish."""
    store(database, base(), adapter(1), adapter(2))


def test_generations_count_up_and_the_highest_is_live(database: Database) -> None:
    numbers = [publish(database, "live", adapter(number).digest).number for number in (1, 2, 1)]
    assert numbers == [1, 2, 3]
    with database.reading() as reader:
        head = channels.head(reader, "live")
        assert head is not None
        assert (head.number, head.artifacts) == (3, (adapter(1).digest,))
        assert channels.at(reader, "live", 2).artifacts == (adapter(2).digest,)
        stored = manifests.load(reader, head.publication, PublicationManifest)
        assert stored.previous == channels.at(reader, "live", 2).publication


def test_artifacts_keep_their_order(database: Database) -> None:
    order = (adapter(2).digest, adapter(1).digest)
    assert publish(database, "live", *order).artifacts == order


def test_publish_refuses_a_stale_head_and_tells_the_current_one(database: Database) -> None:
    publish(database, "live", adapter(1).digest, expect=0)
    with pytest.raises(StaleHeadError) as caught:
        publish(database, "live", adapter(2).digest, expect=0)
    assert (caught.value.code, caught.value.head) == ("GENERATION_STALE", 1)
    assert publish(database, "live", adapter(2).digest, expect=1).number == 2


@pytest.mark.parametrize(("generation", "previous"), [(3, None), (2, None), (2, digest("another publication"))])
def test_a_publication_that_does_not_follow_the_head_is_stale(
    database: Database, generation: int, previous: str | None
) -> None:
    publish(database, "live", adapter(1).digest)
    loose = PublicationManifest.model_construct(
        channel="live",
        generation=generation,
        artifacts=(adapter(1).digest,),
        previous=previous,
        reason="release",
        restored=None,
        kv_identity=digest("kv"),
    )
    with pytest.raises(StaleHeadError):
        database.change("publish", ME, lambda change: channels.append(change, loose))


def test_a_refused_publication_leaves_nothing(database: Database) -> None:
    publish(database, "live", adapter(1).digest)
    with database.reading() as reader:
        before = audit.head(reader)

    def work(change: Change) -> None:
        channels.append(change, next_publication(change, "other", adapter(1).digest))
        channels.append(change, next_publication(change, "live", adapter(2).digest), expect=0)

    with pytest.raises(StaleHeadError):
        database.change("publish", ME, work)
    with database.reading() as reader:
        assert channels.head(reader, "other") is None
        assert audit.head(reader) == before


def test_history_pages_from_the_newest(database: Database) -> None:
    for number in (1, 2, 1, 2, 1):
        publish(database, "live", adapter(number).digest)
    with database.reading() as reader:
        first = channels.history(reader, "live", limit=2)
        second = channels.history(reader, "live", first.next, limit=2)
        third = channels.history(reader, "live", second.next, limit=2)
    numbers = [[row.number for row in page.items] for page in (first, second, third)]
    assert (numbers, third.next) == ([[5, 4], [3, 2], [1]], None)


def test_the_list_of_channels_shows_heads(database: Database) -> None:
    for channel, number in (("b", 1), ("a", 1), ("b", 2)):
        publish(database, channel, adapter(number).digest)
    with database.reading() as reader:
        assert [(row.channel, row.number) for row in channels.page(reader).items] == [("a", 1), ("b", 2)]


def test_unknown_channels_and_generations_are_told_apart(database: Database) -> None:
    publish(database, "live", adapter(1).digest)
    codes = []
    with database.reading() as reader:
        for channel, number in (("none", 1), ("live", 2)):
            with pytest.raises(NotFoundError) as caught:
                channels.at(reader, channel, number)
            codes.append(caught.value.code)
    assert codes == ["CHANNEL_UNKNOWN", "GENERATION_UNKNOWN"]
