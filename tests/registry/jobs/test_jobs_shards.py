"""A dense release whose worker is killed between two files: those that are finished are not made again."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from registry.db.engine import sqlite_path
from registry.service import jobs
from registry.service.export import Form
from registry.service.results import Exported
from schemas.model import validate
from tests.registry.jobs import large
from tests.registry.jobs.shop import PATIENCE_S, Shop
from tests.support.house import faults

KILL_AFTER = 3


class Steps:
    """What the queue remembers of a job: each finished step, and when it was finished."""

    def __init__(self, url: str) -> None:
        file = sqlite_path(url)
        place = url if file is None else f"sqlite:///{file.with_suffix('.jobs.db')}"
        self._engine = create_engine(place, poolclass=NullPool)
        self._table = "operation_outputs" if file else "registry_jobs.operation_outputs"

    def of(self, job_id: str) -> list[tuple[int, str, int]]:
        """Number, name and end of each."""
        query = text(
            f"SELECT function_id, function_name, completed_at_epoch_ms FROM {self._table}"
            " WHERE workflow_uuid = :job ORDER BY function_id"
        )
        try:
            with self._engine.connect() as connection:
                return [(row[0], row[1], row[2]) for row in connection.execute(query, {"job": job_id})]
        except (OperationalError, ProgrammingError):
            return []  # the first worker has not made the table yet


@pytest.mark.long
def test_a_release_killed_between_files_makes_only_the_missing_ones(shop: Shop) -> None:
    with shop.open() as registry:
        job = jobs.submit_export(registry.context, "one", Form("base", "dense"))
    steps = Steps(shop.database_url)
    deadline = time.monotonic() + PATIENCE_S
    with shop.worker() as first:
        while len(steps.of(job.id)) < KILL_AFTER:
            assert time.monotonic() < deadline, shop.logs()
            time.sleep(0.01)
        first.kill()
    finished = steps.of(job.id)
    assert KILL_AFTER <= len(finished) < len(large.MODULES)
    with shop.worker():
        done = shop.until(job.id, lambda seen: not seen.open)
    assert (done.status, done.attempts) == ("done", 2), done
    again = steps.of(job.id)
    assert again[: len(finished)] == finished
    assert len({name for _, name, _ in again}) == len(again) > len(large.MODULES)
    assert done.result is not None
    with shop.open() as registry:
        for file in validate(Exported, done.result).files:
            registry.context.store.verify(file.blob)
        assert faults(registry) == []
