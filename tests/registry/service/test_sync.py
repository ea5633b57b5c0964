"""A channel as a directory: whole before and after every switch, whatever fails, and back to the old bytes."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from registry.errors import ConflictError, NotFoundError, ProblemError, RefusedError, UnavailableError
from registry.service import add, publish, say
from registry.service.context import Context
from registry.service.export import Form
from registry.service.handed import Synced
from registry.service.sync import Stored, Watcher, sync, watch
from tests.support import stored, tiny
from tests.support.stored import Factor, random_factor

QUERY = tiny.MODULES[0]
FORM = Form("tiny", "plain-lora")


@pytest.fixture
def registry(context: Context, tiny_base: Path) -> Context:
    """A registry whose channel `bot` serves `one`."""
    add.add_base(context, tiny_base, "tiny")
    for seed, name in enumerate(("one", "two", "three"), 1):
        stored.put(context, "tiny", name, {QUERY: random_factor(seed)})
    publish.publish(context, "bot", ["one"])
    return context


def weights(folder: Path) -> bytes:
    """What a server that opens `live` reads."""
    return (folder / "live" / "adapter_model.safetensors").read_bytes()


def generations(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("bot@"))


def test_the_live_generation_is_a_directory_under_one_link(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    synced = sync(Stored(registry), "bot", folder, FORM)
    assert (synced.generation, synced.changed, synced.live) == (1, True, str(folder / "live"))
    (name,) = generations(folder)
    assert (folder / "live").readlink() == Path(name)
    assert synced.directory == str(folder / name)
    card: dict[str, Any] = json.loads((folder / "live" / "registry.json").read_text(encoding="utf-8"))
    assert card["generation"]["kv_identity"] == synced.kv_identity


def test_what_is_live_already_is_not_written_again(registry: Context, tmp_path: Path) -> None:
    first = sync(Stored(registry), "bot", tmp_path / "served", FORM)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "served").rglob("*")}
    again = sync(Stored(registry), "bot", tmp_path / "served", FORM)
    assert again == first.model_copy(update={"changed": False})
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "served").rglob("*") if path.name != ".lock"} == {
        path: time for path, time in before.items() if path.name != ".lock"
    }


def test_a_rollback_switches_back_to_the_old_bytes_under_a_new_name(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    sync(Stored(registry), "bot", folder, FORM)
    old = weights(folder)
    publish.publish(registry, "bot", ["two"])
    sync(Stored(registry), "bot", folder, FORM)
    assert weights(folder) != old
    publish.rollback(registry, "bot")
    synced = sync(Stored(registry), "bot", folder, FORM)
    assert (synced.generation, weights(folder)) == (3, old)
    # One name for each generation, though the bytes are those of the first: a server never reuses its cache.
    names = generations(folder)
    assert [name.partition("-")[0] for name in names] == ["bot@g2", "bot@g3"]


def test_the_generation_before_is_kept_for_servers_that_still_read_it(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    for name in ("one", "two", "three"):
        publish.publish(registry, "bot", [name])
        sync(Stored(registry), "bot", folder, FORM)
    assert [name.partition("-")[0] for name in generations(folder)] == ["bot@g3", "bot@g4"]


def test_a_generation_of_several_holds_them_in_order(registry: Context, tmp_path: Path) -> None:
    published = publish.publish(registry, "bot", ["two", "one"])
    folder = tmp_path / "served"
    synced = sync(Stored(registry), "bot", folder, FORM)
    assert Path(synced.directory).name == f"bot@g2-{published.publication.removeprefix('blake3:')[:8]}"
    cards = [json.loads((folder / "live" / str(i) / "registry.json").read_text(encoding="utf-8")) for i in (0, 1)]
    assert [card["artifact"] for card in cards] == list(published.artifacts)
    assert not sync(Stored(registry), "bot", folder, FORM).changed


def test_another_form_in_the_same_folder_is_refused(registry: Context, tmp_path: Path) -> None:
    sync(Stored(registry), "bot", tmp_path / "served", FORM)
    with pytest.raises(ConflictError, match="TARGET_EXISTS"):
        sync(Stored(registry), "bot", tmp_path / "served", Form("another-base", "plain-lora"))


def test_a_folder_where_live_is_something_else_is_refused(registry: Context, tmp_path: Path) -> None:
    (tmp_path / "served" / "live").mkdir(parents=True)
    with pytest.raises(ConflictError, match="TARGET_EXISTS"):
        sync(Stored(registry), "bot", tmp_path / "served", FORM)
    assert generations(tmp_path / "served") == []


def test_two_at_once_do_not_meet(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    folder.mkdir()
    with (folder / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match="SYNC_RUNNING"):
            sync(Stored(registry), "bot", folder, FORM)
    assert sync(Stored(registry), "bot", folder, FORM).changed


def test_what_a_killed_run_left_is_removed_by_the_next(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    (folder / ".bot@g1-00000000.abc.partial").mkdir(parents=True)
    (folder / ".live.abc.partial").symlink_to("nowhere")
    sync(Stored(registry), "bot", folder, FORM)
    assert list(folder.glob(".*.partial")) == []


def test_what_is_live_is_handed_out_although_it_was_yanked_since(registry: Context, tmp_path: Path) -> None:
    say.yank(registry, "one", "bad answers")
    assert sync(Stored(registry), "bot", tmp_path / "served", FORM).changed


def test_a_channel_nobody_published_to_is_not_found(registry: Context, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="CHANNEL_UNKNOWN"):
        sync(Stored(registry), "other", tmp_path / "served", FORM)


def test_a_generation_that_cannot_be_handed_out_leaves_the_one_before(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    sync(Stored(registry), "bot", folder, FORM)
    before = weights(folder)
    factor = random_factor(9)
    dora = Factor(factor.a, factor.b, factor.scale, {"magnitude": np.ones(tiny.HIDDEN, np.float32)})
    stored.put(registry, "tiny", "dora", {QUERY: dora}, family="dora")
    publish.publish(registry, "bot", ["dora"])
    with pytest.raises(RefusedError, match="FACTORS_NOT_PLAIN"):
        sync(Stored(registry), "bot", folder, FORM)
    assert weights(folder) == before
    assert list(folder.glob(".*.partial")) == []


class Follower:
    """A watch in a thread, with what it told."""

    def __init__(self, context: Context, folder: Path, channel: str = "bot") -> None:
        self.switched: list[Synced] = []
        self.failed: list[ProblemError] = []
        self.stop = threading.Event()
        watcher = Watcher(self.switched.append, self.failed.append)
        arguments = (Stored(context), channel, folder, FORM, watcher, self.stop, 0.02)
        self._thread = threading.Thread(target=watch, args=arguments)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what must come."""
        pause = threading.Event()
        for _ in range(3000):
            if condition():
                return
            pause.wait(0.01)
        raise AssertionError(self.failed)


def test_a_watch_follows_publications_and_rollbacks(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    with Follower(registry, folder) as follower:
        follower.until(lambda: len(follower.switched) == 1)
        publish.publish(registry, "bot", ["two"])
        follower.until(lambda: len(follower.switched) == 2)
        publish.rollback(registry, "bot")
        follower.until(lambda: len(follower.switched) == 3)
    assert [synced.generation for synced in follower.switched] == [1, 2, 3]
    assert follower.failed == []


def test_a_watch_waits_for_the_first_publication_and_tells_a_failure_once(registry: Context, tmp_path: Path) -> None:
    with Follower(registry, tmp_path / "served", "later") as follower:
        follower.until(lambda: len(follower.failed) == 1)
        threading.Event().wait(0.1)
        publish.publish(registry, "later", ["one"])
        follower.until(lambda: len(follower.switched) == 1)
    assert [error.code for error in follower.failed] == ["CHANNEL_UNKNOWN"]


def whole_generation(live: Path) -> int:
    """What a reader that follows the link once finds: every file as the card says."""
    directory = live.resolve(strict=True)
    card: dict[str, Any] = json.loads((directory / "registry.json").read_text(encoding="utf-8"))
    for entry in card["files"]:
        data = (directory / entry["path"]).read_bytes()
        assert entry["blob"] == f"blake3:{blake3(data).hexdigest()}"
    found: int = card["generation"]["generation"]
    return found


def test_a_reader_finds_whole_generations_in_order_while_they_switch(registry: Context, tmp_path: Path) -> None:
    folder = tmp_path / "served"
    seen: list[int] = []
    with Follower(registry, folder) as follower:
        follower.until(lambda: len(follower.switched) == 1)
        for number in range(2, 7):
            publish.publish(registry, "bot", [("one", "two", "three")[number % 3]])
            while not seen or seen[-1] < number:
                seen.append(whole_generation(folder / "live"))
    assert seen == sorted(seen)
    assert set(seen) == {1, 2, 3, 4, 5, 6}
