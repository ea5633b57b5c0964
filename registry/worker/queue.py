"""Jobs on a durable queue: DBOS remembers what was taken and which steps are done, our rows say what callers see.

A row without a workflow is enqueued under the row's id; a workflow whose executor is dead is resumed where it stood; a
row whose workflow ended without it is failed; what ended long ago is forgotten. One executor at a time looks after
that, so a job is never resumed twice.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID, error
from sqlalchemy.exc import SQLAlchemyError

from registry.db import jobs
from registry.db.engine import sqlite_path
from registry.db.executors import executors
from registry.db.rows import JobRow
from registry.errors import InternalError, Problem, ProblemError
from registry.service import upkeep
from registry.service.context import Context
from registry.service.jobs import KINDS
from registry.service.work import Worker, perform, told
from schemas.canonical import JsonObject

log = logging.getLogger("registry.jobs")
logging.getLogger("dbos").addHandler(logging.NullHandler())  # without a handler of its own it writes to stderr
VERSION: Final = "1"
"""Of the workflow's shape: executors of one version finish each other's jobs."""
SCHEMA: Final = "registry_jobs"
LOOK_S: Final = 1.0
POLL_S: Final = 0.25
GRACE_S: Final = 10.0
"""How long a running job may go on once its process is asked to stop."""
WINDOW: Final = 200
"""Open jobs of each status that are looked after at a time, the oldest first."""
SWEEP_S: Final = 3_600.0
_AWAY: Final = (ProblemError, SQLAlchemyError, error.DBOSException)
_ONE: Final = threading.Lock()
"""DBOS is one thing a process."""
_ENDED: Final = frozenset({"SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})


class JobQueue:
    """Runs jobs in this process: of each kind one at a time."""

    def __init__(self, context: Context) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._context = context
        self._executors = executors(context.database.url, self.name)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._leave_at = float("inf")
        self._running = set[str]()
        self._here = False
        self._sweep_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it takes jobs, or waits to."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start taking jobs."""
        self._thread.start()

    def wake(self) -> None:
        """There may be a new one."""
        self._wake.set()

    def stop(self) -> None:
        """Take no more; what runs may finish within the grace, or is handed back."""
        self._leave_at = time.monotonic() + GRACE_S
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        if not self._until(lambda: _ONE.acquire(blocking=False)):
            return
        try:
            while self._until(self._executors.live):
                self._work()
        finally:
            self._executors.close()
            _ONE.release()

    def _work(self) -> None:
        """Take jobs until this process has to stop, or another took its place while it was silent."""
        try:
            self._until(self._launched)
            while self._until(self._looked) and self._here:
                self._wake.wait(LOOK_S)
                self._wake.clear()
        finally:
            patience = int(GRACE_S) + 5 if self._running and self._stopping.is_set() else 0
            DBOS.destroy(destroy_registry=True, workflow_completion_timeout_sec=patience)

    def _until(self, attempt: Callable[[], bool]) -> bool:
        """Try until it is done; False when this process has to stop before."""
        while not self._stopping.is_set():
            try:
                if attempt():
                    return True
            except _AWAY as away:
                log.warning("jobs wait: %s", away)
            self._stopping.wait(LOOK_S)
        return False

    def _launched(self) -> bool:
        DBOS.destroy(destroy_registry=True)
        DBOS(config=_config(self._context.database.url, self.name))

        @DBOS.workflow(name="job", max_recovery_attempts=None)
        def job(job_id: str) -> None:
            self._running.add(job_id)
            try:
                perform(self._context, job_id, Worker(self.name, _once, lambda: time.monotonic() > self._leave_at))
            finally:
                self._running.discard(job_id)

        self._workflow = job
        DBOS.launch()
        for kind in KINDS:
            DBOS.register_queue(kind, worker_concurrency=1, polling_interval_sec=POLL_S, on_conflict="always_update")
        log.info("jobs run as %s", self.name)
        return True

    def _looked(self) -> bool:
        self._here = self._executors.live()
        if self._here:
            with self._executors.leading() as leads:
                if leads:
                    self._look_after()
        else:
            log.warning("another runs jobs now in the place of %s", self.name)
        return True

    def _look_after(self) -> None:
        with self._context.database.reading() as reader:
            rows = jobs.unfinished(reader, WINDOW)
        ids = [row.id for row in rows]
        flows = DBOS.list_workflows(workflow_ids=ids, load_input=False, load_output=False) if ids else []
        known = {flow.workflow_id: flow for flow in flows}
        for row in rows:
            flow = known.get(row.id)
            if flow is None:
                with SetWorkflowID(row.id):
                    DBOS.enqueue_workflow(row.kind, self._workflow, row.id)
            elif flow.status in _ENDED:
                self._settle(row)
            elif flow.status == "PENDING" and self._executors.is_dead(flow.executor_id or ""):
                log.warning("job %s goes on without %s", row.id, flow.executor_id)
                DBOS.resume_workflow(row.id, queue_name=row.kind)
        if time.monotonic() >= self._sweep_at:
            more = upkeep.sweep(self._context, DBOS.delete_workflows)
            self._sweep_at = time.monotonic() + (0 if more else SWEEP_S)

    def _settle(self, row: JobRow) -> None:
        """A workflow that ended and left its row open has met a fault of the program."""
        status = DBOS.get_workflow_status(row.id)
        document = told(_crashed(row.id, "" if status is None else repr(status.error)))
        self._context.database.change("job.fail", self.name, lambda change: jobs.fail(change, row, document))


def _once(name: str, make: Callable[[], JsonObject]) -> JsonObject:
    return DBOS.run_step({"name": name}, make)


def _config(url: str, executor: str) -> DBOSConfig:
    """The queue's own tables lie beside ours: in a schema of their own, or in a file."""
    file = sqlite_path(url)
    return DBOSConfig(
        name="adapter-registry",
        system_database_url=url if file is None else f"sqlite:///{file.with_suffix('.jobs.db')}",
        dbos_system_schema=SCHEMA,
        application_version=VERSION,
        executor_id=executor,
        serializer=DBOSPortableJSONSerializer(),
        use_listen_notify=False,
        sys_db_pool_size=5,
        log_level="WARNING",
    )


def _crashed(job_id: str, observed: str) -> InternalError:
    return InternalError(
        Problem(
            code="JOB_CRASHED",
            path=(job_id,),
            expected="a job that ends with a result or a named error",
            observed=observed[:300] or "nothing",
            hint="Look into the log of its worker, and report this as a fault; asking again makes a new job.",
        )
    )
