"""Admissions, and the work that becomes a job: compositions, conversions, exports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BeforeValidator, Field

from registry.api.auth import Composing, Reading
from registry.api.bodies import SpecBody, tupled
from registry.service import decide, jobs, specs
from registry.service.engines import EngineName
from registry.service.export import Form, Profile
from registry.service.jobs import Job
from registry.service.results import Admitted
from registry.service.wishes import Wish
from schemas.conversion import Rule, Store
from schemas.model import Record

router = APIRouter(prefix="/v1", tags=["composition"])


class ConversionIn(Record):
    """What to make of which adapter."""

    ref: str
    rule: Rule
    name: str | None = Field(default=None, description="Name to register the result under.")
    initial: str | None = Field(default=None, description="The snapshot from before the training (portable).")
    base: str | None = Field(default=None, description="The other base (rebase).")
    store: Store | None = Field(default=None, description="The dtype to round to (cast).")
    acknowledge: tuple[str, ...] = Field(default=(), description="Conditions accepted by code.")


class ExportIn(Record):
    """What to hand out, and in which form."""

    ref: str
    base_name: str = Field(description="Where the server that loads it finds the base.")
    profile: Profile = "peft"
    engine: EngineName | None = Field(default=None, description="Check the limits of what will load it.")
    max_lora_rank: int | None = Field(default=None, ge=1, description="The rank limit that engine was started with.")


ConversionBody = Annotated[ConversionIn, BeforeValidator(tupled)]


@router.post("/admissions", status_code=201)
def post_admission(context: Composing, spec: SpecBody) -> Admitted:
    """A stored decision; nothing is composed. 422 with the whole decision when it refuses."""
    return decide.require_proceeding(decide.store(context, decide.ask(context, specs.complete(spec))))


@router.post("/compositions", status_code=202)
def post_composition(context: Composing, spec: SpecBody, request: Request, response: Response) -> Job:
    """Decide now, compose in the background: 202 and a job to ask for."""
    return _accepted(request, response, jobs.submit_composition(context, specs.complete(spec)))


@router.post("/conversions", status_code=202)
def post_conversion(context: Composing, body: ConversionBody, request: Request, response: Response) -> Job:
    """Convert in the background; the job's result is the `Conversion`."""
    wish = Wish(body.rule, body.name, body.initial, body.base, body.store, frozenset(body.acknowledge))
    return _accepted(request, response, jobs.submit_conversion(context, body.ref, wish))


@router.post("/exports", status_code=202)
def post_export(context: Reading, body: ExportIn, request: Request, response: Response) -> Job:
    """Hand out in the background; the job's result is the `Exported`, every file of it a blob to fetch."""
    form = Form(body.base_name, body.profile, body.engine, body.max_lora_rank)
    return _accepted(request, response, jobs.submit_export(context, body.ref, form))


def _accepted(request: Request, response: Response, job: Job) -> Job:
    if request.app.state.runner is not None:
        request.app.state.runner.wake()
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job
