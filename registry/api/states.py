"""What surrounds adapters: routers, continual states, compute contracts, routes and releases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, File, Form, Query, Response, UploadFile

from registry.api.answers import registered
from registry.api.auth import Composing, Guarded, Reading, Registering
from registry.api.bodies import DocumentIn, ReleaseBody
from registry.api.parameters import RefPath, written
from registry.service import contracts, decide, evaluations, histories, releases, routers, routes
from registry.service.context import Context
from registry.service.results import Added, Admitted, ContractDifference, EvaluationReport, StateReport
from registry.service.specs import parse_document
from schemas.names import NAME_PATTERN

ContractQuery = Annotated[
    str, Query(description="A built-in contract by its method, or the reference of a registered one.")
]
ROUTER_FILE: Final = "router.safetensors"
router = APIRouter(prefix="/v1", route_class=Guarded, tags=["states"])


@router.post("/compute-contracts", status_code=201)
def post_compute_contract(context: Registering, body: DocumentIn, response: Response) -> Added:
    """Register a compute contract. 200 when it is already held."""
    return registered(response, contracts.add_contract(context, body.document, body.name))


@router.get("/compute-contracts/diff")
def get_contract_diff(context: Reading, left: ContractQuery, right: ContractQuery) -> ContractDifference:
    """Fields in which two contracts differ, built-in or registered."""
    return contracts.diff(context, left, right)


@router.post("/routers", status_code=201)
def post_router(
    context: Registering,
    response: Response,
    name: Annotated[
        str, Form(description="Name to register it under.", json_schema_extra=written(NAME_PATTERN, "router"))
    ],
    document: Annotated[str, Form(description="The router as YAML or JSON.")],
    tensors: Annotated[UploadFile | None, File(description="The safetensors file that holds its tensors.")] = None,
) -> Added:
    """Register a router. 200 when it is already held."""
    parsed = parse_document(document.encode())
    with _stored(context, tensors) as path:
        return registered(response, routers.add_router(context, parsed, name, path))


@router.post("/continual-states", status_code=201)
def post_continual_state(context: Registering, body: DocumentIn, response: Response) -> Added:
    """Register the state after a task. 200 when it is already held."""
    return registered(response, histories.add_state(context, body.document, body.name))


@router.get("/continual-states/{ref}/report")
def get_state_report(context: Reading, ref: RefPath) -> StateReport:
    """What a continual state costs, and how its tasks fared."""
    return histories.report(context, ref)


@router.post("/evaluations", status_code=201)
def post_evaluation(context: Registering, body: DocumentIn, response: Response) -> Added:
    """Register an evaluation. 200 when it is already held."""
    return registered(response, evaluations.add_evaluation(context, body.document, body.name))


@router.get("/evaluations/{ref}/report")
def get_evaluation_report(context: Reading, ref: RefPath) -> EvaluationReport:
    """What an evaluation's contrasts say, and whether its selected candidate passed."""
    return evaluations.report(context, ref)


@router.post("/resolved-routes", status_code=201)
def post_resolved_route(context: Registering, body: DocumentIn, response: Response) -> Added:
    """Register one request's choices. 200 when they are already held."""
    return registered(response, routes.add_route(context, body.document, body.name))


@router.post("/transactions", status_code=201)
def post_transaction(context: Registering, body: DocumentIn, response: Response) -> Added:
    """Register what one request was bound to. 200 when it is already held."""
    return registered(response, routes.add_transaction(context, body.document, body.name))


@router.post("/releases", status_code=201)
def post_release(context: Composing, spec: ReleaseBody) -> Admitted:
    """Decide on a release and store it. 422 with the whole decision when it refuses."""
    return decide.require_proceeding(releases.release(context, spec))


@contextmanager
def _stored(context: Context, upload: UploadFile | None) -> Iterator[Path | None]:
    """The uploaded file under a name of ours."""
    if upload is None:
        yield None
        return
    with context.store.scratch.folder() as folder:
        path = folder / ROUTER_FILE
        with path.open("xb") as target:
            shutil.copyfileobj(upload.file, target, 1 << 20)
        yield path
