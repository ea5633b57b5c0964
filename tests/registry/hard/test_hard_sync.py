"""SIGKILL at seeded moments of `sync`: a reader of `live` finds a whole directory, before, after and in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from blake3 import blake3

from tests.registry.hard.kills import Kills
from tests.registry.hard.test_hard_kills import SAMPLE_AND_CAMPAIGN
from tests.support.house import House, assert_whole
from tests.support.warmed import Warmed

FORM = ("--base-name", "tiny", "--profile", "plain-lora")


def generation_of(live: Path) -> int:
    """The generation a reader finds behind `live`, every file of it as its card says; 0 where there is none yet."""
    if not live.is_symlink():
        assert not live.exists()
        return 0
    card = json.loads((live / "registry.json").read_text(encoding="utf-8"))
    for entry in card["files"]:
        data = (live / entry["path"]).read_bytes()
        assert entry["blob"] == f"blake3:{blake3(data).hexdigest()}", entry["path"]
    found: int = card["generation"]["generation"]
    return found


def shows(live: Path, generation: int) -> bool:
    """Whether a reader finds this generation."""
    return generation_of(live) == generation


def published(house: House, number: int) -> int:
    """Publish one of two adapters in turn, or roll back; the new generation."""
    with house.open() as registry:
        if number % 3 == 2:
            return registry.rollback("bot").generation
        return registry.publish("bot", ["one" if number % 2 else "two"]).generation


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("wanted", SAMPLE_AND_CAMPAIGN)
def test_a_killed_sync_shows_the_old_generation_or_the_new_one_and_its_repeat_succeeds(
    warmed: Warmed, house: House, wanted: int
) -> None:
    kills, folder = Kills(warmed, wanted), house.folder / "served"
    arguments = ("sync", "bot", str(folder), *FORM)

    def watch() -> frozenset[str]:
        return frozenset(path.name for path in folder.glob(".*.partial"))

    kills.run(house, arguments_after(house, arguments), watch)
    for number in count(3):
        before, new = generation_of(folder / "live"), published(house, number)
        kills.kill(house, arguments, watch, partial(shows, folder / "live", new))
        assert generation_of(folder / "live") in (before, new)
        kills.run(house, arguments, watch)
        assert generation_of(folder / "live") == new
        assert list(folder.glob(".*.partial")) == []
        if kills.done:
            break
    with house.open() as registry:
        assert_whole(registry)
    print(f"\n{wanted} kills of sync: {dict(kills.moments)}")


def arguments_after(house: House, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The command, once the channel has a generation to sync and one to roll back to."""
    for number in (0, 1):
        published(house, number)
    return arguments


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watch_ends_cleanly_on_a_signal(house: House, number: signal.Signals) -> None:
    published(house, 0)
    folder = house.folder / "served"
    command = [sys.executable, "-c", "from registry.app import main; main()"]
    command += ["sync", "bot", str(folder), *FORM, "--watch", "--interval", "0.05", "-o", "jsonl"]
    environment = os.environ | house.environment
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        first = json.loads(run.stdout.readline())
        assert (first["generation"], first["changed"]) == (1, True)
        published(house, 1)
        assert json.loads(run.stdout.readline())["generation"] == 2
        run.send_signal(number)
        _, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (0, "")
    assert generation_of(folder / "live") == 2
