"""SIGKILL at seeded moments of every changing command: nothing half visible, and the repeat succeeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from registry.client import EmbeddedRegistry
from registry.db import purges
from registry.errors import NotFoundError
from registry.wiring import check_database, current_schema
from tests.registry.hard.kills import Kills, Watch, watching
from tests.support import tiny
from tests.support.house import BASE, House, assert_whole
from tests.support.warmed import Warmed

LONG = pytest.mark.long
SAMPLE_AND_CAMPAIGN = [pytest.param(2, id="sample"), pytest.param(50, id="campaign", marks=LONG)]
STRAYS = 6


@dataclass(frozen=True)
class Step:
    """One command to kill, and whether its result is there."""

    arguments: tuple[str, ...]
    arrived: Callable[[EmbeddedRegistry], bool]


Prepare = Callable[[House, int], Step]


def known(registry: EmbeddedRegistry, ref: str) -> bool:
    """Whether a name exists."""
    try:
        return bool(registry.show(ref).refs)
    except NotFoundError:
        return False


def head(registry: EmbeddedRegistry, channel: str) -> int:
    """The number of the live generation."""
    return registry.history(channel, limit=1)[0].generation


def add(house: House, number: int) -> Step:
    name = f"a{number}"
    directory = tiny.write_adapter(house.folder / name, 100 + number)
    arguments = ("add", "adapter", str(directory), "--base", BASE, "--name", name)
    return Step(arguments, lambda registry: known(registry, name))


def add_many(house: House, number: int) -> Step:
    """Twelve adapters, which is one batch."""
    names = [f"n{number}-{place}" for place in range(12)]
    directories = [tiny.write_adapter(house.folder / name, 1000 + 12 * number + n) for n, name in enumerate(names)]

    def arrived(registry: EmbeddedRegistry) -> bool:
        there = {known(registry, name) for name in names}
        assert len(there) == 1, "a batch by half"
        return there == {True}

    return Step(("add", "adapters", *map(str, directories), "--base", BASE), arrived)


def admit(house: House, number: int) -> Step:
    name = f"m{number}"
    return Step(("admit", str(house.spec(name, 1 + number / 64))), lambda registry: known(registry, name))


def publish(house: House, number: int) -> Step:
    with house.open() as registry:
        before = registry.publish("bot", ["one"]).generation if number == 0 else head(registry, "bot")
    return Step(("publish", "bot", "two", "one"), lambda registry: head(registry, "bot") > before)


def rollback(house: House, _number: int) -> Step:
    with house.open() as registry:
        registry.publish("bot", ["one"])
        before = registry.publish("bot", ["two"]).generation
    return Step(("rollback", "bot"), lambda registry: head(registry, "bot") > before)


def gc(house: House, number: int) -> Step:
    """Strays of a crash, and the blobs of a purged adapter whose removal a crash cut off."""
    name = f"p{number}"
    directory = tiny.write_adapter(house.folder / name, 500 + number)
    with house.open() as registry:
        digest = registry.add_adapter(directory, BASE, name).digest
        blobs = {entry.blob for entry in registry.show(name).files if entry.path.endswith(".safetensors")}
        context = registry.context
        context.database.change("manifest.purge", "tester", lambda change: purges.put(change, digest, "asked to"))
        blobs |= {context.store.put_bytes(f"stray {number} {index}".encode()).digest for index in range(STRAYS)}
    return Step(
        ("gc", "--grace", "0"), lambda registry: not any(registry.context.store.has(blob) for blob in sorted(blobs))
    )


PREPARE: dict[str, Prepare] = {
    "add": add,
    "add adapters": add_many,
    "admit": admit,
    "publish": publish,
    "rollback": rollback,
    "gc": gc,
}


def one_kill(kills: Kills, house: House, watch: Watch, step: Step) -> None:
    """Kill, look, repeat; what the repeat left is looked at after the next kill."""
    with house.open() as registry:
        kills.kill(house, step.arguments, watch, lambda: step.arrived(registry))
        assert_whole(registry)
        kills.run(house, step.arguments, watch)
        assert step.arrived(registry)


def campaign(kills: Kills, house: House, watch: Watch, prepare: Prepare) -> None:
    """Kill one command until enough kills have found it running."""
    number = 0
    while not kills.done:
        one_kill(kills, house, watch, prepare(house, number))
        number += 1
    with house.open() as registry:
        assert_whole(registry)


def test_a_few_kills_of_each_command_leave_nothing_by_half_and_the_repeats_succeed(
    warmed: Warmed, house: House
) -> None:
    """Ten of them over the main job, admit and publish, where a kill costs least."""
    main_job = {"admit": 6, "publish": 4} if house.database_url.startswith("sqlite") else {}
    with watching(house) as watch:
        for command, prepare in PREPARE.items():
            campaign(Kills(warmed, main_job.get(command, 2)), house, watch, prepare)


@LONG
@pytest.mark.parametrize("command", PREPARE)
def test_a_killed_command_leaves_nothing_by_half_and_its_repeat_succeeds(
    warmed: Warmed, house: House, command: str
) -> None:
    kills = Kills(warmed, 50)
    with watching(house) as watch:
        campaign(kills, house, watch, PREPARE[command])
    print(f"\n50 kills of {command}: {dict(kills.moments)}")


@pytest.mark.parametrize("wanted", SAMPLE_AND_CAMPAIGN)
def test_a_killed_upgrade_leaves_no_schema_or_all_of_it_and_its_repeat_succeeds(
    warmed: Warmed, new_database: Callable[[Path], str], tmp_path: Path, wanted: int
) -> None:
    kills = Kills(warmed, wanted)
    while not kills.done:
        folder = tmp_path / str(kills.tried)
        folder.mkdir()
        one_upgrade(kills, House(folder, new_database(folder)))
    print(f"\n{wanted} kills of db upgrade: {dict(kills.moments)}")


def one_upgrade(kills: Kills, house: House) -> None:
    """Kill, look, repeat, look again."""
    arguments = ("db", "upgrade")
    with watching(house) as watch:
        kills.kill(house, arguments, watch, lambda: current_schema(house.settings) is not None)
        assert current_schema(house.settings) is None or check_database(house.settings) == ()
        kills.run(house, arguments, watch)
    assert check_database(house.settings) == ()
    with house.open() as registry:
        assert_whole(registry)
