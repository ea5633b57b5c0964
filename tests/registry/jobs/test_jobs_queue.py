"""The queue in this process: it finds rows that nobody told it of, and rows whose work ended without them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from registry.service import add, jobs
from registry.service.composer import Converted, ConvertOrder
from registry.service.context import Context
from registry.service.jobs import Job
from registry.service.wishes import Wish
from registry.wiring import LazyComposer, job_queue
from tests.support import tiny

PATIENCE_S = 60.0


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
    deadline = time.monotonic() + PATIENCE_S
    while (found := jobs.get(context, job.id)).open:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_fault_without_a_name_fails_the_job_and_the_queue_goes_on(filled: Context) -> None:
    with running(replace(filled, composer=Broken(1, 2**30))):
        failed = ended(filled, jobs.submit_conversion(filled, "one", Wish("balanced")))
        again = jobs.submit_conversion(filled, "one", Wish("rebase", base="tiny"))
        assert ended(filled, again).status == "done"
    assert failed.error is not None
    assert failed.error["code"] == "JOB_CRASHED"
    assert "4 factors" in str(failed.error["errors"])


def test_a_row_that_was_there_before_the_queue_is_found(filled: Context) -> None:
    job = jobs.submit_conversion(filled, "one", Wish("rebase", base="tiny"))
    with running(filled):
        assert ended(filled, job).status == "done"
    assert ended(filled, job).attempts == 1


def test_the_queue_is_loaded_only_where_jobs_run() -> None:
    loaded = "import sys, registry.app, registry.api.app; sys.exit('dbos' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
