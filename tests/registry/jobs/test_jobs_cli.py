"""`registry job`: what there is, one of them, calling off, waiting for its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from registry.cli.main import cli
from registry.client import EmbeddedRegistry
from registry.service import jobs
from registry.service.jobs import Job
from registry.service.wishes import Wish
from registry.service.work import Worker, perform
from tests.support.house import House

ALONE = Worker("w", lambda _name, make: make(), lambda: False)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A furnished registry on SQLite."""
    return House(tmp_path, f"sqlite:///{tmp_path / 'registry.db'}").furnish()


def run(house: House, *arguments: str) -> Result:
    """One command."""
    return CliRunner().invoke(cli, ["job", *arguments], env=house.environment)


def said(result: Result) -> Any:
    """What a command wrote to stdout."""
    return json.loads(result.stdout)


def submit(registry: EmbeddedRegistry, name: str) -> Job:
    """Ask for a conversion."""
    return jobs.submit_conversion(registry.context, "one", Wish("balanced", name=name))


def test_jobs_are_listed_shown_and_called_off(house: House) -> None:
    with house.open() as registry:
        made = [submit(registry, name).id for name in ("a", "b")]
    listed = run(house, "ls", "-o", "json")
    assert [job["id"] for job in said(listed)] == list(reversed(made))
    first = run(house, "ls", "--limit", "1")
    assert made[1] in first.stdout
    assert first.stderr.startswith("more: --after ")
    assert said(run(house, "cancel", made[0], "-o", "json"))["status"] == "cancelled"
    assert said(run(house, "show", made[0], "-o", "json"))["status"] == "cancelled"
    assert [job["id"] for job in said(run(house, "ls", "--status", "queued", "-o", "json"))] == [made[1]]
    assert run(house, "show", "none").exit_code == 4


def test_waiting_ends_as_the_job_did(house: House) -> None:
    with house.open() as registry:
        done, off = submit(registry, "even"), submit(registry, "off")
        jobs.cancel(registry.context, off.id)
        perform(registry.context, done.id, ALONE)
        failed = jobs.submit_conversion(registry.context, "one", Wish("rebase", base="tiny", name="even"))
        perform(registry.context, failed.id, ALONE)
    ended = run(house, "wait", done.id, "-o", "json")
    assert (ended.exit_code, said(ended)["result"]["name"]) == (0, "even")
    refused = run(house, "wait", failed.id)
    assert refused.exit_code == 5
    assert "NAME_TAKEN_BY_KIND" in refused.stderr
    cancelled = run(house, "wait", off.id)
    assert cancelled.exit_code == 1
    assert "JOB_CANCELLED" in cancelled.stderr
