"""The line of writers before SQLite's lock: one at a time, bounded waiting, and nothing that depends on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from registry.db import Database, names
from registry.db.queue import SUFFIX, turn
from registry.errors import UnavailableError
from tests.registry.db.examples import ME, adapter, base, store

HOLD = """
import sys, time
from pathlib import Path
from registry.db.queue import turn
with turn(Path(sys.argv[1]), 0.0) as ours:
    print(ours, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Something to stand in line for."""
    path = tmp_path / "registry.db"
    path.touch()
    return path


def test_threads_of_one_process_take_turns(file: Path) -> None:
    inside, most = [0], [0]

    def work() -> None:
        with turn(file, time.monotonic() + 30) as ours:
            assert ours
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_who_waits_past_the_deadline_is_told_so_and_a_change_is_busy_in_words(
    tmp_path: Path, sqlite_template: Path
) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(sqlite_template.read_bytes())
    with turn(path, 0.0) as ours:
        assert ours
        begun = time.monotonic()
        with turn(path, begun + 0.1) as second:
            assert not second
        assert time.monotonic() - begun >= 0.1
        with Database(f"sqlite:///{path}", patience_s=0.1) as database, pytest.raises(UnavailableError) as caught:
            store(database, base())
    assert caught.value.code == "DATABASE_BUSY"


def test_a_killed_holder_leaves_the_line(file: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with turn(file, 0.0) as ours:
            assert not ours
        os.kill(holder.pid, signal.SIGKILL)
    with turn(file, time.monotonic() + 10) as ours:
        assert ours


def test_without_a_file_to_lock_it_is_our_turn_and_no_file_is_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    for place in (None, missing):
        with turn(place, 0.0) as ours:
            assert ours
    assert not missing.with_name(f"none.db{SUFFIX}").exists()


def test_a_lock_file_that_cannot_be_opened_stops_no_change(tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(sqlite_template.read_bytes())
    Path(f"{path}{SUFFIX}").symlink_to(tmp_path / "elsewhere")
    with Database(f"sqlite:///{path}") as database:
        store(database, base(), adapter(0))
        assigned = database.change("name", ME, lambda change: names.assign(change, "qa", "adapter", adapter(0).digest))
    assert assigned.version == 1
    assert not (tmp_path / "elsewhere").exists()
