"""Compositions asked for over the web: one job a question, run by whichever process claims it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from registry.db import Change, jobs
from registry.db.rows import JobRow
from registry.errors import ProblemError, error_document
from registry.service import admit, decide, specs
from registry.service.context import Context
from schemas.canonical import JsonObject
from schemas.model import Record
from schemas.spec import CompositionSpec

KIND: Final = "composition"
LEASE_S: Final = 60.0


class Job(Record):
    """A job as callers see it; `result` is an `Admitted` document, `error` a problem document."""

    id: str
    kind: str
    status: str
    created: str
    updated: str
    progress: JsonObject | None
    result: JsonObject | None
    error: JsonObject | None


def submit(context: Context, spec: CompositionSpec) -> Job:
    """Decide now and queue the work.

    Raises:
        DecisionRefusedError, NotAcknowledgedError: with the stored decision; no job is made.
    """
    answer = decide.require_proceeding(decide.store(context, decide.ask(context, spec)))
    request: JsonObject = {"spec": spec.document(), "principal": context.principal}
    key = f"{answer.admission} {spec.name}"
    row, _ = context.database.change(
        "job.submit", context.principal, lambda change: jobs.insert(change, KIND, key, request)
    )
    return _job(row)


def get(context: Context, job_id: str) -> Job:
    """One job."""
    with context.database.reading() as reader:
        return _job(jobs.get(reader, job_id))


def run_next(context: Context, worker: str) -> bool:
    """Claim and run one job; whether there was one. A job whose worker died is claimed again when its lease ends."""
    row = context.database.change("job.claim", worker, lambda change: jobs.claim(change, worker, LEASE_S))
    if row is None:
        return False
    caller = replace(context, principal=str(row.request["principal"]))
    with _Heartbeat(context, row.id, worker):
        try:
            result = admit.admit(caller, specs.spec_from(row.request["spec"])).document()
        except ProblemError as error:
            document = error_document(error)
            context.database.change("job.fail", worker, lambda change: jobs.fail(change, row.id, document))
            return True
    context.database.change("job.finish", worker, lambda change: jobs.finish(change, row.id, result))
    return True


class _Heartbeat:
    """Renews a job's lease while its work runs."""

    def __init__(self, context: Context, job_id: str, worker: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, args=(context, job_id, worker), daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self, context: Context, job_id: str, worker: str) -> None:
        def renew(change: Change) -> bool:
            return jobs.renew(change, job_id, worker, LEASE_S)

        while not self._stop.wait(LEASE_S / 4):
            context.database.change("job.renew", worker, renew)


def _job(row: JobRow) -> Job:
    return Job(
        id=row.id,
        kind=row.kind,
        status=row.status,
        created=row.created,
        updated=row.updated,
        progress=row.progress,
        result=row.result,
        error=row.error,
    )
