"""The web application over one context."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from registry.api import (
    blobs,
    channels,
    compositions,
    explaining,
    health,
    jobs,
    leases,
    manifests,
    metrics,
    previews,
    registration,
    statements,
    states,
    tokens,
    upkeep,
    uploads,
    webhooks,
    weights,
)
from registry.api.addresses import PlainAddresses
from registry.api.arrival import Arrivals
from registry.api.conditional import NotModified
from registry.api.description import TITLE, Described, operation_id
from registry.api.limits import BODY_LIMIT, BodyLimit
from registry.api.observed import AT_ONCE, Observed
from registry.api.problems import fault_response, http_response, invalid_response, problem_response
from registry.api.request_ids import RequestIds
from registry.errors import ProblemError
from registry.service.context import Context
from registry.service.jobs import Runner
from registry.service.sender import Sender
from registry.service.uploads import LARGEST_UPLOAD, Uploads


def create_app(
    context: Context,
    *,
    open_reads: bool = False,
    body_limit: int = BODY_LIMIT,
    upload_limit: int = LARGEST_UPLOAD,
    at_once: int = AT_ONCE,
    runner: Runner | None = None,
    sender: Sender | None = None,
) -> FastAPI:
    """Routes, errors, and what runs jobs and sends to webhooks here, if anything does.

    Reads need a token unless `open_reads`.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        beside = [item for item in (runner, sender) if item is not None]
        for item in beside:
            item.start()
        yield
        for item in beside:
            item.stop()

    app = Described(title=TITLE, version="1", lifespan=lifespan, generate_unique_id_function=operation_id)
    app.state.context = context
    app.state.open_reads = open_reads
    app.state.runner = runner
    app.state.uploads = Uploads(upload_limit)
    app.state.arrivals = Arrivals()
    app.add_middleware(NotModified)
    app.add_middleware(BodyLimit, limit=body_limit, streamed=upload_limit)
    app.state.probes = health.Probes()
    app.state.counted = metrics.Counted()
    app.add_middleware(PlainAddresses)
    app.add_middleware(Observed, at_once=at_once)
    app.add_middleware(RequestIds)
    app.add_exception_handler(ProblemError, problem_response)
    app.add_exception_handler(RequestValidationError, invalid_response)
    app.add_exception_handler(HTTPException, http_response)
    app.add_exception_handler(Exception, fault_response)
    for router in (
        health.router,
        metrics.router,
        registration.router,
        uploads.router,
        blobs.router,
        manifests.router,
        weights.router,
        compositions.router,
        previews.router,
        jobs.router,
        channels.router,
        states.router,
        leases.router,
        statements.router,
        explaining.router,
        upkeep.router,
        tokens.router,
        webhooks.router,
    ):
        app.include_router(router)
    return app
