"""Many at once: no gap, no double, nothing lost, nobody sees a lock."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing.synchronize import Barrier

import pytest
from sqlalchemy import text

from registry.db import Change, Database, aliases, channels, manifests, names
from registry.db.verify import verify_audit
from registry.errors import StaleHeadError
from tests.registry.db.examples import ME, adapter, base, next_publication, publish, store

THREADS = 6
"""Up to so many run as threads, which start quickly; more run as processes, as in real life."""


def sizes(full: int) -> list[object]:
    """A sample for every run, the full number for the long one."""
    return [THREADS, pytest.param(full, marks=pytest.mark.long)]


def at_once(count: int, work: Callable[[int], str]) -> list[str]:
    """Run `work` so many times at the same time; the answers."""
    if count <= THREADS:
        barrier = threading.Barrier(count)
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(lambda number: (barrier.wait(), work(number))[1], range(count)))
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(["tests.registry.db.examples"])
    start = forked.Barrier(count)
    with ProcessPoolExecutor(count, forked, initializer=_remember, initargs=(start,)) as pool:
        return list(pool.map(partial(_run, work), range(count)))


_start: list[Barrier] = []


def _remember(start: Barrier) -> None:
    _start.append(start)


def _run(work: Callable[[int], str], number: int) -> str:
    _start[0].wait()
    return work(number)


def publish_one(url: str, number: int, *, expect: int | None) -> str:
    """Publish on top of whatever is there, or only on `expect`."""
    with Database(url, patience_s=120) as database:
        try:
            return str(publish(database, "live", adapter(number % 2).digest, expect=expect).number)
        except StaleHeadError as error:
            return f"stale at {error.head}"


def register_same(url: str, number: int) -> str:
    """Register one adapter as everybody else does."""

    def work(change: Change) -> str:
        created = manifests.put(change, adapter(7))
        assigned = names.assign(change, "same", "adapter", adapter(7).digest)
        return f"{created} {assigned.version} {assigned.created}"

    with Database(url, patience_s=120) as database:
        return database.change("add", f"process {number}", work)


def register_own(url: str, number: int) -> str:
    """Register an adapter of one's own under a common name."""

    def work(change: Change) -> str:
        manifests.put(change, adapter(100 + number))
        return str(names.assign(change, "common", "adapter", adapter(100 + number).digest).version)

    with Database(url, patience_s=120) as database:
        return database.change("add", f"process {number}", work)


def move_alias(url: str, number: int) -> str:
    """Move one alias."""
    with Database(url, patience_s=120) as database:
        move = partial(aliases.move, name="qa", alias="stable", version=1 + number % 2)
        return str(database.change("alias", ME, move).sequence)


@pytest.fixture
def filled(database: Database) -> Database:
    """Two adapters under one name."""
    store(database, base(), adapter(0), adapter(1))
    for number in (0, 1):
        assign = partial(names.assign, name="qa", kind="adapter", digest=adapter(number).digest)
        database.change("name", ME, assign)
    return database


@pytest.mark.parametrize("count", sizes(32))
def test_publishing_at_once_leaves_no_gap_and_no_double(filled: Database, count: int) -> None:
    numbers = at_once(count, partial(publish_one, filled.url, expect=None))
    assert sorted(int(number) for number in numbers) == list(range(1, count + 1))
    with filled.reading() as reader:
        head = channels.head(reader, "live")
        assert head is not None
        assert head.number == count
        assert verify_audit(reader) == ()


def test_changes_take_turns_so_that_each_runs_once_on_what_the_one_before_left(filled: Database) -> None:
    runs: list[int] = []

    def work(change: Change) -> int:
        publication = next_publication(change, "live", adapter(0).digest)
        runs.append(publication.generation)
        return channels.append(change, publication).number

    at_once(THREADS, lambda _: str(filled.change("publish", ME, work)))
    assert runs == list(range(1, THREADS + 1))


@pytest.mark.parametrize("count", sizes(32))
def test_publishing_on_one_head_lets_one_through_and_tells_the_others(filled: Database, count: int) -> None:
    answers = at_once(count, partial(publish_one, filled.url, expect=0))
    assert sorted(answers) == ["1", *["stale at 1"] * (count - 1)]


@pytest.mark.parametrize("count", sizes(16))
def test_registering_the_same_adapter_at_once_gives_one_row(filled: Database, count: int) -> None:
    answers = at_once(count, partial(register_same, filled.url))
    assert sorted(answers) == [*["False 1 False"] * (count - 1), "True 1 True"]
    with filled.reading() as reader:
        query = text("SELECT count(*) FROM manifest WHERE digest = :digest")
        assert reader.session.scalar(query, {"digest": adapter(7).digest}) == 1


@pytest.mark.parametrize("count", sizes(16))
def test_registering_under_one_name_at_once_gives_each_a_version(filled: Database, count: int) -> None:
    answers = at_once(count, partial(register_own, filled.url))
    assert sorted(int(version) for version in answers) == list(range(1, count + 1))


@pytest.mark.parametrize("count", sizes(20))
def test_moving_an_alias_at_once_keeps_every_event(filled: Database, count: int) -> None:
    answers = at_once(count, partial(move_alias, filled.url))
    assert sorted(int(sequence) for sequence in answers) == list(range(1, count + 1))
    with filled.reading() as reader:
        kept = aliases.history(reader, "qa", "stable", limit=100).items
        assert [row.sequence for row in kept] == list(range(count, 0, -1))
        assert verify_audit(reader) == ()
