"""A registry whose jobs are done by real processes: servers and workers that can be killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from registry.client import EmbeddedRegistry
from registry.db.rows import AuditEventRow, RunRecordRow
from registry.service import jobs, specs
from registry.service.jobs import Job
from registry.settings import Settings
from registry.wiring import initialise
from tests.registry.jobs import large
from tests.support import tiny
from tests.support.forks import Forked, forks
from tests.support.served import Served, serving

PATIENCE_S = 300.0


@dataclass(frozen=True)
class Process:
    """A `registry worker`."""

    handle: Forked
    log: Path

    def ready(self) -> Process:
        """The same, once it takes jobs."""
        deadline = time.monotonic() + PATIENCE_S
        while "jobs run as" not in self.log.read_text(encoding="utf-8"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """End it without a word."""
        self.handle.send_signal(signal.SIGKILL)
        self.handle.wait()

    def ask_to_stop(self) -> int:
        """End it as an operator does, and its exit code."""
        self.handle.send_signal(signal.SIGTERM)
        return self.handle.wait(PATIENCE_S)


@dataclass(frozen=True)
class Shop:
    """A registry in `folder` on a database."""

    folder: Path
    database_url: str

    @property
    def environment(self) -> dict[str, str]:
        """What points a command here."""
        return {
            "REGISTRY_HOME": str(self.folder / "home"),
            "REGISTRY_DATABASE_URL": self.database_url,
            "REGISTRY_WORKERS": "1",
        }

    @contextmanager
    def open(self) -> Iterator[EmbeddedRegistry]:
        """The registry in this process."""
        settings = Settings(home=self.folder / "home", database_url=self.database_url, workers=1, principal="tester")
        with EmbeddedRegistry.open(settings) as registry:
            yield registry

    def furnish(self) -> Shop:
        """Create it with a large base and a small one, and two adapters of each."""
        home = Settings(home=self.folder / "home", database_url=self.database_url)
        initialise(home)
        with self.open() as registry:
            registry.add_base(large.write_base(self.folder / "large"), large.BASE)
            registry.add_base(tiny.write_base(self.folder / "tiny"), "tiny")
            for seed, name in enumerate(("one", "two"), 1):
                registry.add_adapter(large.write_adapter(self.folder / name, seed), large.BASE, name)
                registry.add_adapter(tiny.write_adapter(self.folder / f"{name}-small", seed), "tiny", f"{name}-small")
        return self

    @contextmanager
    def worker(self) -> Iterator[Process]:
        """A worker that is gone at the end."""
        log = self.folder / f"worker-{time.monotonic_ns()}.log"
        with log.open("wb") as stream:
            number = stream.fileno()
            handle = forks().start(["worker"], self.environment, self.folder, stdout=number, stderr=number)
        process = Process(handle, log)
        try:
            yield process
        finally:
            process.kill()

    @contextmanager
    def server(self, *options: str) -> Iterator[Served]:
        """A server that is gone at the end."""
        with serving(self.folder, self.environment, *options) as made:
            yield made

    def submit(self, spec: dict[str, Any]) -> Job:
        """Ask for a composition."""
        with self.open() as registry:
            return jobs.submit_composition(registry.context, specs.parse_spec(json.dumps(spec).encode()))

    def job(self, job_id: str) -> Job:
        """Where a job stands."""
        with self.open() as registry:
            return registry.job(job_id)

    def until(self, job_id: str, seen: Callable[[Job], bool], patience_s: float = PATIENCE_S) -> Job:
        """Wait for a job to be as wanted."""
        deadline = time.monotonic() + patience_s
        with self.open() as registry:
            while True:
                found = registry.job(job_id)
                if seen(found):
                    return found
                assert time.monotonic() < deadline, (found, self.logs())
                time.sleep(0.1)

    def logs(self) -> str:
        """What the processes wrote."""
        return "\n".join(path.read_text(encoding="utf-8")[-3000:] for path in self.folder.glob("*.log"))

    def counts(self) -> tuple[int, int]:
        """Compositions that ran, and compositions that were stored or named, by the audit."""
        with self.open() as registry, registry.context.database.reading() as reader:
            ran = reader.session.scalar(select(func.count()).select_from(RunRecordRow))
            told = AuditEventRow.action.in_(("composition.store", "composition.name"))
            stored = reader.session.scalar(select(func.count()).select_from(AuditEventRow).where(told))
        return ran or 0, stored or 0


def midway(job: Job) -> bool:
    """Some modules are done, and others are not."""
    return job.status == "running" and job.progress is not None and int(str(job.progress["done"])) >= 2


def small_spec(name: str, weight: float) -> dict[str, Any]:
    """A composition that takes a moment."""
    members = [{"ref": "one-small", "weight": 1.0}, {"ref": "two-small", "weight": weight}]
    return {"name": name, "base": "tiny", "method": "cat", "space": "delta", "members": members}
