"""Jobs: where they stand, their progress as server-sent events, and calling them off."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Final

from anyio import sleep, to_thread
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from registry.api.answers import linked
from registry.api.auth import Composing, Guarded, Reading
from registry.api.parameters import After, Limit
from registry.errors import UnavailableError
from registry.service import jobs
from registry.service.context import Context
from registry.service.jobs import Job, JobPage, Status

LOOK_S: Final = 0.25
PING_S: Final = 15.0
ENDING: Final = "ending"
"""What the state of a request says once its server is told to end."""
_EVENT: Final = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string"},
        "event": {"enum": ["progress", "done", "failed", "cancelled"]},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "The job."},
    },
}
router = APIRouter(prefix="/v1/jobs", route_class=Guarded, tags=["jobs"])
LastEvent = Annotated[
    str | None, Header(description="The id of the last event that arrived; the stream goes on there.")
]


@router.get("")
def get_jobs(
    context: Reading,
    request: Request,
    response: Response,
    status: Status | None = None,
    after: After = None,
    limit: Limit = 50,
) -> JobPage:
    """Jobs, newest first, without their results."""
    page = jobs.ls(context, status, after, limit)
    linked(request, response, page.next)
    return page


@router.get("/{job_id}")
def get_job(context: Reading, job_id: str) -> Job:
    """Where a job stands; `result` when it is done, `error` when it failed."""
    return jobs.get(context, job_id)


@router.delete("/{job_id}")
def delete_job(context: Composing, job_id: str) -> Job:
    """Call a job off: its worker stops soon and nothing of it is kept. One that has ended is returned as it is."""
    return jobs.cancel(context, job_id)


@router.get(
    "/{job_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"description": "Events as they come", "content": {"text/event-stream": {"schema": _EVENT}}},
        204: {"description": "The last event there is arrived before"},
    },
)
def get_job_events(context: Reading, request: Request, job_id: str, last_event_id: LastEvent = None) -> Response:
    """What happens to a job as server-sent events, until it has ended or the server is told to.

    `progress` while it is open, then `done`, `failed` or `cancelled`; the data of each is the job. An event's id is the
    moment of the job it shows, so a stream that is opened again with `Last-Event-ID` goes on where it broke.
    """
    job = jobs.get(context, job_id)
    if not job.open and job.updated == last_event_id:
        return Response(status_code=204)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = _events(context, job, last_event_id, request)
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def _events(context: Context, job: Job, seen: str | None, request: Request) -> AsyncIterator[str]:
    said = time.monotonic()
    while True:
        if job.updated != seen:
            yield _event(job)
            seen, said = job.updated, time.monotonic()
        if not job.open or getattr(request.state, ENDING, False):
            return
        if time.monotonic() - said >= PING_S:
            yield ": still there\n\n"
            said = time.monotonic()
        await sleep(LOOK_S)
        job = await _look(context, job)


async def _look(context: Context, job: Job) -> Job:
    """The job as it is now; a database that is away for a moment does not end the stream."""
    try:
        return await to_thread.run_sync(jobs.get, context, job.id)
    except UnavailableError:
        return job


def _event(job: Job) -> str:
    name = "progress" if job.open else job.status
    return f"id: {job.updated}\nevent: {name}\ndata: {json.dumps(job.document())}\n\n"
