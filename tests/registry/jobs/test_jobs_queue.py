"""The queue in this process: it finds rows that nobody told it of, and rows whose work ended without them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from registry.db import Database
from registry.db import jobs as rows
from registry.db.engine import sqlite_path
from registry.db.session import utc_now
from registry.service import add, jobs, resolve
from registry.service.composer import Converted, ConvertOrder
from registry.service.context import Context
from registry.service.jobs import Job
from registry.service.wishes import Wish
from registry.wiring import LazyComposer, job_queue
from tests.support import tiny

PATIENCE_S = 300.0


@dataclass(frozen=True)
class Broken(LazyComposer):
    """A composer with a fault that has no name."""

    def convert(self, order: ConvertOrder, folder: Path) -> Converted:
        """Never ends well."""
        raise ZeroDivisionError(f"{len(order.factors)} factors in {folder.name[:8]}")


@pytest.fixture
def filled(context: Context, tmp_path: Path) -> Context:
    """With an adapter."""
    add.add_base(context, tiny.write_base(tmp_path / "base"), "tiny")
    add.add_adapter(context, tiny.write_adapter(tmp_path / "one", 1), "tiny", "one")
    return context


@contextmanager
def running(context: Context) -> Iterator[None]:
    """While a queue runs here."""
    queue = job_queue(context)
    queue.start()
    try:
        yield
    finally:
        assert queue.alive
        queue.stop()


def ended(context: Context, job: Job) -> Job:
    """The job once it has ended."""
    wait_for(lambda: not jobs.get(context, job.id).open)
    return jobs.get(context, job.id)


def wait_for(seen: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_fault_without_a_name_fails_the_job_and_the_queue_goes_on(filled: Context) -> None:
    with running(replace(filled, composer=Broken(1, 2**30))):
        failed = ended(filled, jobs.submit_conversion(filled, "one", Wish("balanced")))
        again = jobs.submit_conversion(filled, "one", Wish("rebase", base="tiny"))
        assert ended(filled, again).status == "done"
    assert failed.error is not None
    assert failed.error["code"] == "JOB_CRASHED"
    assert "4 factors" in str(failed.error["errors"])


def test_rows_that_the_queue_knows_nothing_of_are_found_also_when_restored_from_the_middle(filled: Context) -> None:
    fresh = jobs.submit_conversion(filled, "one", Wish("rebase", base="tiny"))
    restored = jobs.submit_conversion(filled, "one", Wish("rebase", base="tiny", name="moved"))
    filled.database.change("start", "old", lambda change: rows.start(change, restored.id, "gone"))
    with running(filled):
        for job, attempts in ((fresh, 1), (restored, 2)):
            done = ended(filled, job)
            assert (done.status, done.attempts) == ("done", attempts)


def test_what_ended_more_than_a_week_ago_is_forgotten_also_by_the_queue(filled: Context) -> None:
    job = jobs.submit_conversion(filled, "one", Wish("rebase", base="tiny", name="moved"))
    with running(filled):
        assert ended(filled, job).status == "done"
    with Database(filled.database.url, clock=lambda: utc_now() + timedelta(days=8)) as database:
        later = replace(filled, database=database)
        young = jobs.submit_conversion(later, "one", Wish("rebase", base="tiny"))
        with running(later):
            assert ended(later, young).status == "done"
            wait_for(lambda: [item.id for item in jobs.ls(later).items] == [young.id])
        assert workflows(database.url) == [young.id]
        again = jobs.submit_conversion(later, "one", Wish("rebase", base="tiny", name="moved"))
        assert again.id != job.id
        with database.reading() as reader:
            assert resolve.digest_of(reader, "moved")


def workflows(url: str) -> list[str]:
    """The jobs that the queue's own tables know."""
    file = sqlite_path(url)
    place, schema = (url, "registry_jobs.") if file is None else (f"sqlite:///{file.with_suffix('.jobs.db')}", "")
    engine = create_engine(place, poolclass=NullPool)
    with engine.connect() as connection:
        rows = connection.scalars(text(f"SELECT workflow_uuid FROM {schema}workflow_status"))
        return [str(row) for row in rows]


def test_the_queue_is_loaded_only_where_jobs_run() -> None:
    loaded = "import sys, registry.app, registry.api.app; sys.exit('dbos' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
