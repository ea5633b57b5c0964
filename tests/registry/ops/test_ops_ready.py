"""What `/readyz` says of jobs: a server that should run them and does not is degraded, and still answers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from fastapi.testclient import TestClient

from registry.api.app import create_app
from registry.service.context import Context
from registry.service.jobs import Runner


@dataclass(frozen=True)
class Standing:
    """A runner of jobs that does nothing, alive or not."""

    alive: bool

    def start(self) -> None:
        """Nothing to start."""

    def wake(self) -> None:
        """Nobody to wake."""

    def stop(self) -> None:
        """Nothing to stop."""


@pytest.mark.parametrize(
    ("runner", "status", "jobs"),
    [
        (None, "ready", []),
        (Standing(True), "ready", [{"name": "jobs", "ok": True, "said": "ok"}]),
        (Standing(False), "degraded", [{"name": "jobs", "ok": False, "said": "RUNNER_ENDED"}]),
    ],
    ids=["elsewhere", "alive", "ended"],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_server_says_whether_its_jobs_run(
    context: Context, runner: Runner | None, status: str, jobs: list[object]
) -> None:
    answer = TestClient(create_app(context, runner=runner)).get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert [part for part in answer.json()["parts"] if part["name"] == "jobs"] == jobs
