"""Jobs of a server: followed by its events, and by asking where events do not come through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import httpx2

from registry.client.refusals import told
from registry.client.remote import paths
from registry.client.remote.http import Http, parsed
from registry.errors import CancelledError, InternalError, Problem, ProblemError, UnavailableError, UsageProblemError
from registry.service.composer import Progress
from registry.service.jobs import Job, JobPage, Status

LARGEST_EVENT: Final = 256 * 2**20
"""Bytes; the last event carries the result, and a decision over many modules is long."""


class Jobs:
    """Work that the server does, seen from here."""

    http: Http

    def jobs(self, status: Status | None = None, after: str | None = None, limit: int = 50) -> JobPage:
        """One page of jobs, newest first, without their results."""
        return self.http.get(JobPage, "/v1/jobs", {"status": status, "after": after, "limit": limit})

    def job(self, job_id: str) -> Job:
        """One job with its result or error."""
        return self.http.get(Job, paths.of_id("jobs", job_id))

    def cancel_job(self, job_id: str) -> Job:
        """Call an open job off; one that has ended is returned as it is."""
        return parsed(self.http.delete(paths.of_id("jobs", job_id)), Job.model_validate_json)

    def wait_job(self, job_id: str, progress: Callable[[Job], None] | None = None) -> Job:
        """Wait until a job has ended; `progress` is told what there is to see."""
        return followed(self.http, self.job(job_id), progress)


def followed(http: Http, job: Job, progress: Callable[[Job], None] | None = None) -> Job:
    """The job when it has ended.

    Raises:
        UnavailableError: the server is away for longer than patience lasts. The job goes on there.
    """
    seen: str | None = None
    pauses = http.patience.pauses()
    while job.open:
        try:
            for now in _events(http, job.id, seen):
                job, seen, pauses = now, now.updated, http.patience.pauses()
                if progress is not None:
                    progress(now)
        except (UnavailableError, UsageProblemError):
            http.pause(next(pauses, http.patience.longest_pause_s))
        if job.open:
            job = http.get(Job, paths.of_id("jobs", job.id))
    return job


def done(job: Job) -> Job:
    """A job that ended well.

    Raises:
        ProblemError: what its worker ran into, as the class it was there.
        CancelledError: `JOB_CANCELLED`.
    """
    if job.status == "done":
        return job
    if job.status == "cancelled":
        hint = "Ask for it again; nothing of it was kept."
        raise CancelledError(_problem("JOB_CANCELLED", job, "called off", hint))
    raise _failure(job)


def counted(progress: Progress | None) -> Callable[[Job], None] | None:
    """Progress of a job as counts of what is done."""
    if progress is None:
        return None

    def tell(job: Job) -> None:
        if job.progress is not None:
            progress(int(str(job.progress["done"])), int(str(job.progress["total"])))

    return tell


def _events(http: Http, job_id: str, seen: str | None) -> Iterator[Job]:
    headers = {"Accept": "text/event-stream"} | ({} if seen is None else {"Last-Event-ID": seen})
    with http.stream(paths.of_id("jobs", job_id, "events"), headers) as answer:
        if answer.status_code == 204:
            return
        for event in httpx2.EventSource(answer, LARGEST_EVENT):
            yield Job.model_validate_json(event.data)


def _failure(job: Job) -> ProblemError:
    found = None if job.error is None else told(job.error)
    if found is None:
        return InternalError(_problem("JOB_FAILED", job, str(job.error), "See what the server's log says of it."))
    return found


def _problem(code: str, job: Job, observed: str, hint: str) -> Problem:
    return Problem(code=code, path=(job.id,), expected="a job that is done", observed=observed[:300], hint=hint)
