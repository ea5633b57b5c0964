"""Admissions, and the work that becomes a job: compositions, conversions, exports."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import Field

from registry.api.answers import Repeatable
from registry.api.auth import Composing, Guarded, Reading
from registry.api.bodies import Many, SpecBody, example
from registry.api.parameters import NameText, RefText, Text
from registry.service import decide, jobs, specs
from registry.service.engines import EngineName
from registry.service.export import Form, Profile
from registry.service.jobs import Job
from registry.service.results import Admitted
from registry.service.wishes import Wish
from schemas.conversion import Rule, Store
from schemas.decision import Code
from schemas.model import Record

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["composition"])


class ConversionIn(Record):
    """What to make of which adapter."""

    model_config = example({"ref": "support-bot@2", "rule": "plain_lora", "name": "support-bot-plain"})
    ref: RefText
    rule: Rule
    name: NameText | None = Field(default=None, description="Name to register the result under.")
    initial: RefText | None = Field(default=None, description="The snapshot from before the training (portable).")
    base: RefText | None = Field(default=None, description="The other base (rebase).")
    store: Store | None = Field(default=None, description="The dtype to round to (cast).")
    acknowledge: Many[Code] = Field(default=(), max_length=256, description="Conditions accepted by code.")


class ExportIn(Record):
    """What to hand out, and in which form."""

    model_config = example({"ref": "channel:bot@g3", "base_name": "/models/minilm", "profile": "plain-lora"})
    ref: RefText
    base_name: Text = Field(description="Where the server that loads it finds the base.")
    profile: Profile = "peft"
    engine: EngineName | None = Field(default=None, description="Check the limits of what will load it.")
    max_lora_rank: int | None = Field(
        default=None, ge=1, le=2**31, description="The rank limit that engine was started with."
    )


@router.post("/admissions", status_code=201)
def post_admission(context: Composing, spec: SpecBody) -> Admitted:
    """A stored decision; nothing is composed. 422 with the whole decision when it refuses."""
    return decide.require_proceeding(decide.store(context, decide.ask(context, specs.complete(spec))))


@router.post("/compositions", status_code=202)
def post_composition(context: Composing, spec: SpecBody, request: Request, response: Response, once: Repeatable) -> Job:
    """Decide now, compose in the background: 202 and a job to ask for."""
    job = once(context, spec, Job, lambda caller: jobs.submit_composition(caller, specs.complete(spec)))
    return _accepted(request, response, job)


@router.post("/conversions", status_code=202)
def post_conversion(
    context: Composing, body: ConversionIn, request: Request, response: Response, once: Repeatable
) -> Job:
    """Convert in the background; the job's result is the `Conversion`."""
    wish = Wish(body.rule, body.name, body.initial, body.base, body.store, frozenset(body.acknowledge))
    job = once(context, body, Job, lambda caller: jobs.submit_conversion(caller, body.ref, wish))
    return _accepted(request, response, job)


@router.post("/exports", status_code=202)
def post_export(context: Reading, body: ExportIn, request: Request, response: Response, once: Repeatable) -> Job:
    """Hand out in the background; the job's result is the `Exported`, every file of it a blob to fetch."""
    form = Form(body.base_name, body.profile, body.engine, body.max_lora_rank)
    job = once(context, body, Job, lambda caller: jobs.submit_export(caller, body.ref, form))
    return _accepted(request, response, job)


def _accepted(request: Request, response: Response, job: Job) -> Job:
    if request.app.state.runner is not None:
        request.app.state.runner.wake()
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job
