"""Jobs: work for later. One live job a key; a worker holds a job by a lease it must renew."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, select, update

from registry.db import paging
from registry.db.paging import Page
from registry.db.problems import found
from registry.db.rows import JobRow
from registry.db.session import Change, Reader, stamp
from schemas.canonical import JsonObject, canonical_bytes

OPEN: Final = ("queued", "running")


def insert(change: Change, kind: str, key: str, request: JsonObject) -> tuple[JobRow, bool]:
    """Queue a job, or return the one of the same key that is queued, running or done (then False)."""
    live = change.one(select(JobRow).where(JobRow.live_key == key))
    if live is not None:
        return live, False
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


def get(reader: Reader, job_id: str) -> JobRow:
    """A job. Raises NotFoundError `JOB_UNKNOWN`."""
    mine = select(JobRow).where(JobRow.id == job_id).execution_options(populate_existing=True)
    return found(reader.one(mine), "JOB_UNKNOWN", f"a job {job_id}", "List the jobs with `registry job ls`.")


def claim(change: Change, worker: str, lease_s: float) -> JobRow | None:
    """Take the oldest queued job, or else one whose worker let its lease (seconds) run out."""
    waiting = JobRow.status == "queued"
    abandoned = (JobRow.status == "running") & (JobRow.lease_until < change.now)
    job = _oldest(change, waiting) or _oldest(change, abandoned)
    if job is None:
        return None
    _set(
        change,
        job.id,
        status="running",
        worker=worker,
        attempts=job.attempts + 1,
        lease_until=_later(change, lease_s),
    )
    return get(change, job.id)


def renew(change: Change, job_id: str, worker: str, lease_s: float) -> bool:
    """Hold a job longer; False when it is no longer this worker's."""
    mine = (JobRow.status == "running", JobRow.worker == worker)
    return _set(change, job_id, *mine, lease_until=_later(change, lease_s))


def progress(change: Change, job_id: str, value: JsonObject) -> bool:
    """Record how far an open job is."""
    return _set(change, job_id, JobRow.status.in_(OPEN), progress_json=_json(value))


def finish(change: Change, job_id: str, result: JsonObject) -> bool:
    """Record the result; False when the job was not open any more."""
    return _set(change, job_id, JobRow.status.in_(OPEN), status="done", result_json=_json(result))


def fail(change: Change, job_id: str, error: JsonObject) -> bool:
    """Record the failure and free the key; False when the job was not open any more."""
    return _set(change, job_id, JobRow.status.in_(OPEN), status="failed", live_key=None, error_json=_json(error))


def cancel(change: Change, job_id: str) -> JobRow:
    """Cancel an open job and free its key; another is returned as it is. Raises NotFoundError `JOB_UNKNOWN`."""
    _set(change, job_id, JobRow.status.in_(OPEN), status="cancelled", live_key=None)
    return get(change, job_id)


def page(reader: Reader, status: str | None = None, after: str | None = None, limit: int = 50) -> Page[JobRow]:
    """One page of jobs, newest first."""
    statement = select(JobRow) if status is None else select(JobRow).where(JobRow.status == status)
    return paging.page(reader, statement, (JobRow.created, JobRow.id), after, limit, newest_first=True)


def _oldest(change: Change, state: ColumnElement[bool]) -> JobRow | None:
    # two workers never wait for one row: the second takes the next
    first = select(JobRow).where(state).order_by(JobRow.created, JobRow.id).limit(1)
    return change.one(first.with_for_update(skip_locked=True))


def _set(change: Change, job_id: str, *where: ColumnElement[bool], **values: str | int | None) -> bool:
    statement = update(JobRow).where(JobRow.id == job_id, *where).values(updated=change.now, **values)
    done = change.session.connection().execute(statement)
    return done.rowcount == 1


def _later(change: Change, seconds: float) -> str:
    return stamp(datetime.fromisoformat(change.now) + timedelta(seconds=seconds))


def _json(value: JsonObject) -> str:
    return canonical_bytes(value).decode()
