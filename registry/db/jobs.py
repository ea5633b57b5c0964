"""Jobs: work for later. One live job a key; what runs them is told by the queue, what came of them by these rows."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, delete, select, update

from registry.db import paging
from registry.db.paging import Page
from registry.db.problems import found
from registry.db.rows import JobRow
from registry.db.session import Change, Reader
from schemas.canonical import JsonObject, canonical_bytes

OPEN: Final = ("queued", "running")


def insert(change: Change, kind: str, key: str, request: JsonObject) -> tuple[JobRow, bool]:
    """Queue a job, or return the one of the same key that is queued, running or done (then False)."""
    known = live(change, key)
    if known is not None:
        return known, False
    row = JobRow(
        id=secrets.token_hex(16),
        kind=kind,
        key=key,
        live_key=key,
        status="queued",
        request_json=_json(request),
        principal=change.principal,
        created=change.now,
        updated=change.now,
    )
    change.insert(row)
    return row, True


def live(reader: Reader, key: str) -> JobRow | None:
    """The job of a key that is queued, running or done."""
    return reader.one(select(JobRow).where(JobRow.live_key == key))


def get(reader: Reader, job_id: str) -> JobRow:
    """A job. Raises NotFoundError `JOB_UNKNOWN`."""
    mine = select(JobRow).where(JobRow.id == job_id).execution_options(populate_existing=True)
    return found(reader.one(mine), "JOB_UNKNOWN", f"a job {job_id}", "List the jobs with `registry job ls`.")


def start(change: Change, job_id: str, worker: str) -> JobRow | None:
    """Take an open job; None when it is not open any more."""
    mine = (JobRow.id == job_id, JobRow.status.in_(OPEN))
    taken = {"status": "running", "worker": worker, "attempts": JobRow.attempts + 1, "updated": change.now}
    done = change.session.connection().execute(update(JobRow).where(*mine).values(taken))
    return get(change, job_id) if done.rowcount == 1 else None


def hand_back(change: Change, row: JobRow) -> bool:
    """Queue a job that its worker could not finish in time; the attempt does not count."""
    return _set(change, row.id, *_held(row), status="queued", worker=None, attempts=row.attempts - 1)


def progress(change: Change, row: JobRow, value: JsonObject) -> bool:
    """Record how far an open job is; False when it ended or another worker took it since `row` was read."""
    return _set(change, row.id, *_held(row), progress_json=_json(value))


def finish(change: Change, row: JobRow, result: JsonObject) -> bool:
    """Record the result; False when the job ended or another worker took it since `row` was read."""
    return _set(change, row.id, *_held(row), status="done", result_json=_json(result))


def fail(change: Change, row: JobRow, error: JsonObject) -> bool:
    """Record the failure and free the key; False when the job ended or another worker took it since `row` was read."""
    return _set(change, row.id, *_held(row), status="failed", live_key=None, error_json=_json(error))


def cancel(change: Change, job_id: str) -> JobRow:
    """Cancel an open job and free its key; another is returned as it is. Raises NotFoundError `JOB_UNKNOWN`."""
    _set(change, job_id, JobRow.status.in_(OPEN), status="cancelled", live_key=None)
    return get(change, job_id)


def page(reader: Reader, status: str | None = None, after: str | None = None, limit: int = 50) -> Page[JobRow]:
    """One page of jobs, newest first."""
    statement = select(JobRow) if status is None else select(JobRow).where(JobRow.status == status)
    return paging.page(reader, statement, (JobRow.created, JobRow.id), after, limit, newest_first=True)


def unfinished(reader: Reader, limit: int) -> tuple[JobRow, ...]:
    """Every running job and the oldest queued ones, at most `limit` of each."""
    found: list[JobRow] = []
    for status in reversed(OPEN):
        rows = select(JobRow).where(JobRow.status == status).order_by(JobRow.created, JobRow.id)
        found += reader.all(rows.limit(limit))
    return tuple(found)


def forget(change: Change, job_id: str) -> None:
    """Free the key of a job that is done, because what it made is gone: the same question is then a new job."""
    _set(change, job_id, JobRow.status == "done", live_key=None)


def ended(reader: Reader, before: str, limit: int) -> tuple[str, ...]:
    """Jobs that ended before a time, the oldest first."""
    mine = (JobRow.created < before, JobRow.updated < before, JobRow.status.not_in(OPEN))
    return reader.all(select(JobRow.id).where(*mine).order_by(JobRow.created, JobRow.id).limit(limit))


def remove(change: Change, job_ids: Sequence[str]) -> None:
    """Forget jobs altogether; their keys are free."""
    change.session.connection().execute(delete(JobRow).where(JobRow.id.in_(job_ids)))


def _held(row: JobRow) -> tuple[ColumnElement[bool], ...]:
    """Open, and still with the worker and in the attempt of `row`: whoever lost a job changes nothing of it."""
    return JobRow.status.in_(OPEN), JobRow.worker.is_not_distinct_from(row.worker), JobRow.attempts == row.attempts


def _set(change: Change, job_id: str, *where: ColumnElement[bool], **values: str | int | None) -> bool:
    statement = update(JobRow).where(JobRow.id == job_id, *where).values(updated=change.now, **values)
    done = change.session.connection().execute(statement)
    return done.rowcount == 1


def _json(value: JsonObject) -> str:
    return canonical_bytes(value).decode()
