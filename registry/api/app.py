"""The web application over one context."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError

from registry.api import bodies, channels, compositions, health, jobs, leases, manifests, registration, states, tokens
from registry.api.limits import BODY_LIMIT, BodyLimit
from registry.api.problems import invalid_response, problem_response
from registry.api.request_ids import RequestIds
from registry.errors import ProblemError
from registry.service.context import Context
from registry.service.jobs import Runner


def create_app(
    context: Context, *, open_reads: bool = False, body_limit: int = BODY_LIMIT, runner: Runner | None = None
) -> FastAPI:
    """Routes, errors and what runs jobs here, if anything does; reads need a token unless `open_reads`."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if runner is not None:
            runner.start()
        yield
        if runner is not None:
            runner.stop()

    app = FastAPI(title="Adapter registry", version="1", lifespan=lifespan, responses=bodies.PROBLEMS)
    app.state.context = context
    app.state.open_reads = open_reads
    app.state.runner = runner
    app.add_middleware(BodyLimit, limit=body_limit)
    app.add_middleware(RequestIds)
    app.add_exception_handler(ProblemError, problem_response)
    app.add_exception_handler(RequestValidationError, invalid_response)
    for router in (
        health.router,
        registration.router,
        manifests.router,
        compositions.router,
        jobs.router,
        channels.router,
        states.router,
        leases.router,
        tokens.router,
    ):
        app.include_router(router)
    return app
