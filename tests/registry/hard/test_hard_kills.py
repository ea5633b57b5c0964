"""SIGKILL at seeded moments of every changing command: nothing half visible, and the repeat succeeds."""

from __future__ import annotations

from collections import Counter
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


def campaign(warmed: Warmed, house: House, prepare: Prepare, wanted: int) -> Counter[str]:
    """So many kills of one command, every one of which found it running."""
    kills = Kills(warmed, wanted)
    with watching(house) as watch:
        kills.run(house, prepare(house, 0).arguments, watch)
        for number in range(1, 3 * wanted + 4):
            one_kill(kills, house, watch, prepare(house, number))
            if kills.done:
                break
    assert kills.done, f"fewer than {wanted} kills found the command running: {dict(kills.moments)}"
    with house.open() as registry:
        assert_whole(registry)
    return kills.moments


@pytest.mark.parametrize("wanted", SAMPLE_AND_CAMPAIGN)
@pytest.mark.parametrize("command", PREPARE)
def test_a_killed_command_leaves_nothing_by_half_and_its_repeat_succeeds(
    warmed: Warmed, house: House, command: str, wanted: int
) -> None:
    print(f"\n{wanted} kills of {command}: {dict(campaign(warmed, house, PREPARE[command], wanted))}")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_ten_kills_over_admit_and_publish_leave_the_main_job_repeatable(warmed: Warmed, house: House) -> None:
    moments = campaign(warmed, house, admit, 6) + campaign(warmed, house, publish, 4)
    assert moments.total() - moments["too late"] == 10


@pytest.mark.parametrize("wanted", SAMPLE_AND_CAMPAIGN)
def test_a_killed_upgrade_leaves_no_schema_or_all_of_it_and_its_repeat_succeeds(
    warmed: Warmed, new_database: Callable[[Path], str], tmp_path: Path, wanted: int
) -> None:
    kills = Kills(warmed, wanted)
    for number in range(3 * wanted + 4):
        folder = tmp_path / str(number)
        folder.mkdir()
        one_upgrade(kills, House(folder, new_database(folder)), first=number == 0)
        if kills.done:
            break
    assert kills.done, f"fewer than {wanted} kills found the upgrade running: {dict(kills.moments)}"
    print(f"\n{wanted} kills of db upgrade: {dict(kills.moments)}")


def one_upgrade(kills: Kills, house: House, *, first: bool) -> None:
    """Kill unless it is the first, whose time is only measured; look, repeat, look again."""
    arguments = ("db", "upgrade")
    with watching(house) as watch:
        if not first:
            kills.kill(house, arguments, watch, lambda: current_schema(house.settings) is not None)
            assert current_schema(house.settings) is None or check_database(house.settings) == ()
        kills.run(house, arguments, watch)
    assert check_database(house.settings) == ()
    with house.open() as registry:
        assert_whole(registry)
