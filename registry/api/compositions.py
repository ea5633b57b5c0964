"""Admissions, compositions and their jobs."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from registry.api.auth import Composing, Reading
from registry.api.bodies import SpecBody
from registry.service import decide, jobs, specs
from registry.service.jobs import Job
from registry.service.results import Admitted

router = APIRouter(prefix="/v1", tags=["composition"])


@router.post("/admissions", status_code=201)
def post_admission(context: Composing, spec: SpecBody) -> Admitted:
    """A stored decision; nothing is composed. 422 with the whole decision when it refuses."""
    return decide.require_proceeding(decide.store(context, decide.ask(context, specs.complete(spec))))


@router.post("/compositions", status_code=202)
def post_composition(context: Composing, spec: SpecBody, request: Request, response: Response) -> Job:
    """Decide now, compose in the background: 202 and a job to ask for."""
    job = jobs.submit(context, specs.complete(spec))
    request.app.state.runner.wake()
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


@router.get("/jobs/{job_id}")
def get_job(context: Reading, job_id: str) -> Job:
    """Where a job stands; `result` when it is done, `error` when it failed."""
    return jobs.get(context, job_id)
