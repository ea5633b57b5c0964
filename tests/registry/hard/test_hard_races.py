"""Processes at once on one channel, one adapter, one alias: each is decided by the database, and none is lost."""

from __future__ import annotations

import json

import pytest

from registry.db import aliases, channels, manifests
from registry.db.rows import ManifestRow
from tests.support import tiny
from tests.support.house import BASE, House, assert_whole
from tests.support.warmed import Ended, Warmed

LONG = pytest.mark.long


def at_once(warmed: Warmed, house: House, *commands: tuple[str, ...]) -> tuple[Ended, ...]:
    """Run these together; nobody may crash or see a lock."""
    ended = warmed.run_at_once(commands, house.environment, house.folder)
    assert {item.exit for item in ended} <= {0, 5}, [item.err for item in ended]
    assert not any("locked" in item.err for item in ended)
    return ended


def generations(house: House, channel: str) -> list[int]:
    """The numbers of a channel's generations."""
    with house.open() as registry, registry.context.database.reading() as reader:
        return sorted(row.number for row in channels.history(reader, channel, limit=500).items)


@pytest.mark.parametrize("count", [pytest.param(6, id="sample"), pytest.param(32, id="campaign", marks=LONG)])
def test_publishers_on_one_head_have_one_winner_and_losers_who_know_the_head(
    warmed: Warmed, house: House, count: int
) -> None:
    with house.open() as registry:
        registry.publish("bot", ["one"])
    ended = at_once(warmed, house, *[("publish", "bot", "two", "--expect", "g1", "-o", "json")] * count)
    winners = [json.loads(item.out) for item in ended if item.exit == 0]
    losers = [json.loads(item.err) for item in ended if item.exit == 5]
    assert [winner["generation"] for winner in winners] == [2]
    assert [(loser["code"], loser["head"]) for loser in losers] == [("GENERATION_STALE", "g2")] * (count - 1)
    assert generations(house, "bot") == [1, 2]
    with house.open() as registry:
        assert_whole(registry)


@pytest.mark.parametrize("count", [pytest.param(6, id="sample"), pytest.param(32, id="campaign", marks=LONG)])
def test_publishers_who_expect_nothing_all_get_a_generation_of_their_own(
    warmed: Warmed, house: House, count: int
) -> None:
    refs = ("one", "two")
    ended = at_once(warmed, house, *[("publish", "bot", refs[turn % 2], "-o", "json") for turn in range(count)])
    assert sorted(json.loads(item.out)["generation"] for item in ended) == list(range(1, count + 1))
    assert generations(house, "bot") == list(range(1, count + 1))
    with house.open() as registry:
        assert_whole(registry)
        told = {item.generation: item.artifacts for item in registry.history("bot", limit=count)}
    for item in ended:
        answer = json.loads(item.out)
        assert told[answer["generation"]] == tuple(answer["artifacts"])


@pytest.mark.parametrize("count", [pytest.param(4, id="sample"), pytest.param(16, id="campaign", marks=LONG)])
def test_a_new_adapter_registered_by_many_at_once_is_one_row_and_everybody_is_told_its_version(
    warmed: Warmed, house: House, count: int
) -> None:
    directory = tiny.write_adapter(house.folder / "new", 77)
    command = ("add", "adapter", str(directory), "--base", BASE, "--name", "new", "-o", "json")
    ended = at_once(warmed, house, *[command] * count)
    told = [json.loads(item.out) for item in ended]
    assert [item["created"] for item in told].count(True) == 1
    assert {(item["name"], item["version"]) for item in told} == {("new", 1)}
    with house.open() as registry, registry.context.database.reading() as reader:
        rows: tuple[ManifestRow, ...] = manifests.page(reader, manifests.ManifestFilter(kind="adapter")).items
        assert [row.digest for row in rows].count(told[0]["digest"]) == 1
        assert len(rows) == 3
        assert_whole(registry)


@pytest.mark.parametrize("count", [pytest.param(5, id="sample"), pytest.param(20, id="campaign", marks=LONG)])
def test_every_move_of_an_alias_is_kept_and_the_last_one_counts(warmed: Warmed, house: House, count: int) -> None:
    with house.open() as registry:
        registry.add_adapter(house.folder / "two", BASE, "one")
    commands = [("alias", f"one@{1 + turn % 2}", "stable", "-o", "json") for turn in range(count)]
    told = {item["event"]: item["version"] for item in (json.loads(i.out) for i in at_once(warmed, house, *commands))}
    assert sorted(told) == list(range(1, count + 1))
    with house.open() as registry, registry.context.database.reading() as reader:
        moves = aliases.history(reader, "one", "stable", limit=count + 1).items
        assert {move.sequence: move.version for move in moves} == told
        assert aliases.current(reader, "one", "stable").version == told[count]
        assert_whole(registry)


@pytest.mark.parametrize("count", [pytest.param(4, id="sample"), pytest.param(16, id="campaign", marks=LONG)])
def test_versions_given_to_different_adapters_at_once_are_all_different(
    warmed: Warmed, house: House, count: int
) -> None:
    directories = [tiny.write_adapter(house.folder / f"new-{seed}", 200 + seed) for seed in range(count)]
    commands = [("add", "adapter", str(item), "--base", BASE, "--name", "qa", "-o", "json") for item in directories]
    told = [json.loads(item.out) for item in at_once(warmed, house, *commands)]
    assert sorted(item["version"] for item in told) == list(range(1, count + 1))
    with house.open() as registry:
        assert_whole(registry)
