"""Alive, and ready: whether database and store can be read and written now, and whether jobs run here that should."""

from __future__ import annotations

import threading
import time
from typing import Final, Literal

from fastapi import APIRouter, Request, Response

from registry.api.bodies import HealthOut
from registry.service import readiness
from registry.service.context import Context
from registry.service.readiness import Part
from schemas.model import Record

router = APIRouter(tags=["operations"])
FRESH_S: Final = 1.0


class ReadyOut(Record):
    """Whether this server can do its work, part by part; `degraded` when it answers everything and runs no jobs."""

    status: Literal["ready", "degraded", "away"]
    parts: tuple[Part, ...]


class Probes:
    """The last answer, kept for a second and asked for by one caller at a time: a probe must not become a load."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = float("-inf")
        self._parts: tuple[Part, ...] = ()

    def of(self, context: Context) -> tuple[Part, ...]:
        """How each part is."""
        with self._lock:
            if time.monotonic() - self._at > FRESH_S:
                self._parts = readiness.probe(context)
                self._at = time.monotonic()
            return self._parts


@router.get("/healthz")
async def healthz() -> HealthOut:
    """The process answers, whatever else is away."""
    return HealthOut(status="ok")


@router.get("/readyz", responses={503: {"model": ReadyOut, "description": "A part is away; it is named"}})
def readyz(request: Request, response: Response) -> ReadyOut:
    """Database, schema revision and store answer and can be written, within a few seconds; where jobs are run here,
    what runs them is alive."""
    parts = request.app.state.probes.of(request.app.state.context)
    runners = () if request.app.state.runner is None else (readiness.jobs(request.app.state.runner),)
    if not all(part.ok for part in parts):
        response.status_code = 503
        response.headers["Retry-After"] = "1"
        return ReadyOut(status="away", parts=(*parts, *runners))
    ready = all(runner.ok for runner in runners)
    return ReadyOut(status="ready" if ready else "degraded", parts=(*parts, *runners))
