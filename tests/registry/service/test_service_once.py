"""A request under a key is done once: its answer is kept with what it did, and for a day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from registry.db import Change, Database
from registry.errors import ConflictError, Problem, RefusedError
from registry.service import retire
from registry.service.context import Context
from registry.service.once import once
from registry.service.results import Collected
from registry.storage import open_store
from registry.wiring import LazyComposer

DONE = Collected(removed=(), bytes=7, staging=0)
OTHER = Collected(removed=(), bytes=8, staging=0)


def concluding(result: Collected, seen: list[int]) -> Callable[[Context], Collected]:
    """Work that ends in one transaction, as use cases do."""

    def work(context: Context) -> Collected:
        seen.append(result.bytes)
        return context.conclude("test.once", lambda _: result)

    return work


def test_the_same_request_is_answered_again_and_not_done_again(context: Context) -> None:
    seen: list[int] = []
    first = once(context, "k", {"a": 1}, Collected, concluding(DONE, seen))
    again = once(context, "k", {"a": 1}, Collected, concluding(OTHER, seen))
    assert (first.result, first.replayed) == (DONE, False)
    assert (again.result, again.replayed) == (DONE, True)
    assert seen == [7]
    with pytest.raises(RefusedError, match="IDEMPOTENCY_KEY_REUSED"):
        once(context, "k", {"a": 2}, Collected, concluding(OTHER, seen))
    assert seen == [7]


def test_work_without_a_key_is_done_each_time(context: Context) -> None:
    seen: list[int] = []
    for _ in range(2):
        assert not once(context, None, {}, Collected, concluding(DONE, seen)).replayed
    assert seen == [7, 7]


def test_an_answer_that_was_not_concluded_in_a_transaction_is_kept_too(context: Context) -> None:
    once(context, "k", {}, Collected, lambda _: DONE)
    assert once(context, "k", {}, Collected, lambda _: OTHER).result == DONE


def test_what_is_undone_leaves_no_answer(context: Context) -> None:
    def fails(inner: Context) -> Collected:
        def work(change: Change) -> Collected:
            inner.task.ending(change, DONE)
            raise RefusedError(Problem(code="X_Y", expected="a", observed="b", hint="c"))

        return inner.database.change("test.once", inner.principal, work)

    with pytest.raises(RefusedError, match="X_Y"):
        once(context, "k", {}, Collected, fails)
    assert once(context, "k", {}, Collected, lambda _: OTHER).result == OTHER


def test_who_loses_a_race_under_one_key_gets_the_answer_of_the_winner(context: Context) -> None:
    def loses(_: Context) -> Collected:
        once(context, "k", {}, Collected, lambda _: DONE)
        raise ConflictError(Problem(code="X_Y", expected="a", observed="b", hint="c"))

    found = once(context, "k", {}, Collected, loses)
    assert (found.result, found.replayed) == (DONE, True)


def test_answers_are_forgotten_after_a_day(database_url: str, tmp_path: Path) -> None:
    now = [datetime(2026, 5, 1, 12, tzinfo=UTC)]
    with Database(database_url, clock=lambda: now[0]) as database:
        context = Context(database, open_store(str(tmp_path / "store")), LazyComposer(1, 2**30), "tester")
        once(context, "k", {}, Collected, lambda _: DONE)
        now[0] += timedelta(hours=23)
        retire.gc(context, 3600.0)
        assert once(context, "k", {}, Collected, lambda _: OTHER).replayed
        now[0] += timedelta(hours=2)
        retire.gc(context, 3600.0)
        assert not once(context, "k", {}, Collected, lambda _: OTHER).replayed
