"""Locks, lost races, lost connections: tried again within a bound, then said in words."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, select, text

from registry.db import Change, Database, manifests, names
from registry.db.prepared import Prepared
from registry.db.rows import NameRow
from registry.db.verify import verify_audit
from registry.errors import ConflictError, InternalError, UnavailableError
from tests.registry.db.examples import ME, adapter, base, publish, store


def test_a_held_lock_is_waited_for(database: Database) -> None:
    """Another connection holds what the change needs for a while; the change succeeds after it."""
    engine = create_engine(database.url)
    held = threading.Event()

    def hold() -> None:
        sqlite = engine.dialect.name == "sqlite"
        with engine.connect() as connection:
            connection.execute(text("BEGIN IMMEDIATE" if sqlite else "LOCK TABLE manifest IN EXCLUSIVE MODE"))
            held.set()
            time.sleep(0.4)
            connection.rollback()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    store(database, base())
    holder.join()
    engine.dispose()
    with database.reading() as reader:
        assert manifests.find(reader, base().digest) is not None


def test_sqlite_that_stays_locked_is_busy_in_words(tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(sqlite_template.read_bytes())
    # waits for the lock once, as long as one statement may
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Database(f"sqlite:///{path}", patience_s=0.0) as database, pytest.raises(UnavailableError) as caught:
        store(database, base())
    holder.close()
    assert caught.value.code == "DATABASE_BUSY"


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_race_lost_to_a_writer_out_of_line_runs_the_change_again(database: Database) -> None:
    """No change takes the key meanwhile, but another program may; the second run sees its row."""
    runs = []

    def work(change: Change) -> None:
        known = names.all_known(change, ["twice"])
        runs.append(len(known))
        if not known:
            intruder = create_engine(database.url)
            with intruder.begin() as connection:
                connection.execute(
                    text("INSERT INTO name (name, kind, created, change_id) VALUES ('twice', 'x', '', '')")
                )
            intruder.dispose()
            change.append(_name(change))

    database.change("name", ME, work)
    assert runs == [0, 1]


def test_a_key_that_stays_taken_is_a_typed_conflict(database_url: str) -> None:
    with Database(database_url, patience_s=0.2) as database:
        store(database, base(), adapter(1))
        publish(database, "live", adapter(1).digest)
        with pytest.raises(ConflictError) as caught:
            database.change("name", ME, lambda change: change.append(*(_name(change), _name(change))))
    assert caught.value.code == "NAME_TAKEN_BY_KIND"


def test_a_connection_lost_in_the_middle_is_made_anew(database: Database) -> None:
    if database.url.startswith("sqlite"):
        return
    runs = []

    def work(change: Change) -> bool:
        runs.append(change.change_id)
        if len(runs) == 1:
            pid = change.session.scalar(text("SELECT pg_backend_pid()"))
            killer = create_engine(database.url)
            with killer.begin() as connection:
                connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            killer.dispose()
        return manifests.put(change, base())

    assert database.change("add", ME, work) is True
    assert len(runs) == 2
    with database.reading() as reader:
        assert verify_audit(reader) == ()


def test_a_change_that_falls_silent_is_ended_and_made_anew(database: Database) -> None:
    """So that a process which is stopped in the middle of a change holds up the others for a time and no longer."""
    if database.url.startswith("sqlite"):
        return
    setting = "idle_in_transaction_session_timeout"
    runs = []

    def work(change: Change) -> bool:
        runs.append(change.session.scalar(text(f"SHOW {setting}")))
        if len(runs) == 1:
            change.session.execute(text(f"SET LOCAL {setting} = 50"))
            time.sleep(0.5)
        return manifests.put(change, base())

    assert database.change("add", ME, work) is True
    assert runs == ["2min", "2min"]
    with database.reading() as reader:
        assert reader.session.scalar(text(f"SHOW {setting}")) == "0"
        assert verify_audit(reader) == ()


def test_a_server_that_is_away_is_unavailable_in_words_after_a_few_seconds(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://postgres@/none?host={tmp_path}"
    with Database(url) as database:
        began = time.monotonic()
        with pytest.raises(UnavailableError) as writing:
            store(database, base())
        assert time.monotonic() - began < 10
        with pytest.raises(UnavailableError) as reading, database.reading() as reader:
            manifests.find(reader, base().digest)
    assert (writing.value.code, reading.value.code) == ("DATABASE_UNAVAILABLE", "DATABASE_UNAVAILABLE")


def test_a_missing_file_is_unavailable_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with Database(f"sqlite:///{path}") as database, pytest.raises(UnavailableError):
        store(database, base())
    assert not path.exists()


def test_a_database_without_a_schema_says_so(empty_database_url: str) -> None:
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE other (id INTEGER)"))
    engine.dispose()
    with Database(empty_database_url) as database, pytest.raises(UnavailableError) as caught:
        store(database, base())
    assert caught.value.code == "SCHEMA_MISSING"


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"not a database" * 1000)
    with Database(f"sqlite:///{path}") as database, pytest.raises(InternalError) as caught:
        store(database, base())
    assert caught.value.code == "DATABASE_DAMAGED"


def test_a_page_that_is_damaged_behind_the_first_rows_is_told_as_one(tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(sqlite_template.read_bytes())
    rows = [{"name": f"name-{number:05}", "kind": "adapter", "created": "now"} for number in range(5000)]
    with Database(f"sqlite:///{path}") as database:
        database.change("names", ME, lambda change: change.write(NameRow, rows))
    pages = path.read_bytes()
    last = pages.rindex(b"name-04999adapternow") // 4096
    path.write_bytes(pages[: last * 4096] + b"\xff" * 4096 + pages[(last + 1) * 4096 :])
    every = Prepared(select(NameRow.name, NameRow.created))
    with (
        Database(f"sqlite:///{path}") as database,
        pytest.raises(InternalError) as caught,
        database.reading() as reader,
    ):
        every.all(reader.connection)
    assert caught.value.code == "DATABASE_DAMAGED"


def test_a_row_without_what_it_names_is_refused(database: Database) -> None:
    with pytest.raises(InternalError) as caught:
        store(database, adapter(1))
    assert "foreign key" in caught.value.problems[0].observed.lower()


def test_a_snapshot_cannot_write(database: Database) -> None:
    with pytest.raises(UnavailableError) as caught, database.reading() as reader:
        reader.session.execute(text("DELETE FROM job"))
    assert caught.value.code == "DATABASE_READ_ONLY"


def test_a_snapshot_stays_as_it_was(database: Database) -> None:
    with database.reading() as reader:
        assert manifests.find(reader, base().digest) is None
        store(database, base())
        assert manifests.find(reader, base().digest) is None


def _name(change: Change) -> NameRow:
    return NameRow(name="twice", kind="adapter", created=change.now)
