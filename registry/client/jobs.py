"""The part of the client that looks after jobs of a server or worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from registry.client.later import later

if TYPE_CHECKING:
    from registry.service import jobs
    from registry.service.context import Context
    from registry.service.jobs import Job, JobPage, Status
else:
    (jobs,) = later("registry.service", "jobs")

LOOK_S: Final = 0.5


class Jobs:
    """Work that a server or a worker does, seen from here."""

    context: Context

    def jobs(self, status: Status | None = None, after: str | None = None, limit: int = 50) -> JobPage:
        """One page of jobs, newest first."""
        return jobs.ls(self.context, status, after, limit)

    def job(self, job_id: str) -> Job:
        """One job with its result or error."""
        return jobs.get(self.context, job_id)

    def cancel_job(self, job_id: str) -> Job:
        """Call an open job off."""
        return jobs.cancel(self.context, job_id)

    def wait_job(self, job_id: str, progress: Callable[[Job], None] | None = None) -> Job:
        """Wait until a job has ended; `progress` is told what there is to see."""
        while True:
            job = self.job(job_id)
            if progress is not None:
                progress(job)
            if not job.open:
                return job
            time.sleep(LOOK_S)
