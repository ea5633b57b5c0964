"""Who is alive: an executor holds a lock, and whoever ended, however that was, holds none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from registry.db.executors import SILENT_S, Executors, executors
from registry.errors import UnavailableError


@pytest.fixture
def shared_url(request: pytest.FixtureRequest) -> str:
    """A PostgreSQL database."""
    server = request.getfixturevalue("postgres_server")
    url: str = server.url(server.create())
    return url


def test_the_living_are_not_dead_and_the_closed_are(shared_url: str) -> None:
    one, two = executors(shared_url, "one"), executors(shared_url, "two")
    assert one.live()
    assert two.live()
    assert not one.is_dead("two")
    assert not one.is_dead("one")
    assert one.is_dead("never")
    two.close()
    assert one.is_dead("two")
    assert two.live()
    assert not one.is_dead("two")
    _close(one, two)


def test_one_leads_at_a_time(shared_url: str) -> None:
    one, two = executors(shared_url, "one"), executors(shared_url, "two")
    with one.leading() as first, two.leading() as second:
        assert (first, second) == (True, False)
    with two.leading() as second:
        assert second
    _close(one, two)


def test_a_session_that_was_cut_is_opened_and_locked_again(shared_url: str) -> None:
    one, two = executors(shared_url, "one"), executors(shared_url, "two")
    assert one.live()
    admin = create_engine(shared_url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        connection.execute(text(f"{others} AND datname = current_database()"))
    assert two.is_dead("one")
    with pytest.raises(UnavailableError):
        one.live()
    assert one.live()
    assert not two.is_dead("one")
    _close(one, two)
    admin.dispose()


def test_who_is_silent_for_too_long_is_dead_until_it_says_again_that_it_lives(shared_url: str) -> None:
    patient, one, two = (
        executors(shared_url, "patient"),
        executors(shared_url, "one"),
        executors(shared_url, "two", 0.2),
    )
    assert one.live()
    with one.leading():
        assert not patient.is_dead("one")
        time.sleep(0.4)
        assert not patient.is_dead("one")
        with two.leading() as instead:
            assert not instead
        _until(lambda: two.is_dead("one"))
        with two.leading() as instead:
            assert instead
        with pytest.raises(UnavailableError):
            one.live()
    assert one.live()
    assert not patient.is_dead("one")
    _close(patient, one, two)


def test_who_is_silent_for_too_long_loses_the_file_and_waits_like_the_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'registry.db'}"
    one, two = executors(url, "one"), executors(url, "two")
    lock = tmp_path / "registry.jobs.lock"
    assert one.live()
    _age(lock, SILENT_S / 2)
    assert not two.live()
    assert not two.live()
    _age(lock, 2 * SILENT_S)
    assert one.live()
    assert not two.live()
    assert one.live()
    _age(lock, 2 * SILENT_S)
    assert not two.live()
    assert two.live()
    assert not one.live()
    two.close()
    assert one.live()
    _close(one, two)


def test_sqlite_has_one_executor_at_a_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'registry.db'}"
    one, two = executors(url, "one"), executors(url, "two")
    assert one.live()
    assert not two.live()
    assert one.live()
    assert one.is_dead("two")
    assert not one.is_dead("one")
    one.close()
    assert two.live()
    _close(one, two)


def _age(lock: Path, seconds: float) -> None:
    """As if its holder had been silent for so long."""
    moment = time.time() - seconds
    os.utime(lock, (moment, moment))


def _until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _close(*held: Executors) -> None:
    for each in held:
        each.close()
