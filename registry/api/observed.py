"""What is measured and logged of every request, and how many are answered at once."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from registry.api import metrics
from registry.api.logs import log
from registry.api.problems import problem_response
from registry.errors import Problem, UnavailableError, UsageProblemError

AT_ONCE: Final = 512
"""Requests one process answers at once; idle connections are none."""
HEAD_BYTES: Final = 32 * 2**10
"""Longest head of a request, in bytes."""
_ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_ELSEWHERE: Final = "none"


@dataclass
class _Seen:
    """What a request turned out to be."""

    began: float = field(default_factory=time.perf_counter)
    status: int = 500
    received: int = 0


class Observed:
    """ASGI middleware: counts, times and logs each request, and answers 503 beyond `at_once`."""

    def __init__(self, app: ASGIApp, at_once: int = AT_ONCE) -> None:
        self._app = app
        self._at_once = at_once
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen()

        async def counted() -> Message:
            message = await receive()
            seen.received += len(message.get("body", b""))
            return message

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status = message["status"]
            await send(message)

        self._running += 1
        try:
            with metrics.IN_FLIGHT.track_inprogress():
                await self._chosen(scope)(scope, counted, noted)
        finally:
            self._running -= 1
            _tell(scope, seen)

    def _chosen(self, scope: Scope) -> ASGIApp:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES:
            return problem_response(Request(scope), UsageProblemError(_long()))
        if self._running > self._at_once and scope["path"] not in _ALWAYS:
            return problem_response(Request(scope), UnavailableError(_busy(self._at_once)))
        return self._app


def _tell(scope: Scope, seen: _Seen) -> None:
    route = str(getattr(scope.get("route"), "path", _ELSEWHERE))
    method = scope["method"] if scope["method"] in _METHODS else _ELSEWHERE
    seconds = time.perf_counter() - seen.began
    metrics.REQUESTS.labels(method, route, str(seen.status)).inc()
    metrics.SECONDS.labels(method, route).observe(seconds)
    if seen.received:
        metrics.RECEIVED.labels(method, route).inc(seen.received)
    state: dict[str, Any] = scope.get("state", {})
    log.info(
        "request",
        process=os.getpid(),
        request_id=state.get("request_id"),
        principal=state.get("principal"),
        method=method,
        route=route,
        status=seen.status,
        ms=round(seconds * 1000, 3),
        bytes=seen.received,
    )


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Anything else is no label of ours: a caller must not be able to make figures without end."""


def _busy(limit: int) -> Problem:
    return Problem(
        code="SERVER_BUSY",
        expected=f"at most {limit} requests at once",
        observed="more",
        hint="Try again after the seconds of Retry-After, or start more processes (`registry serve --workers`).",
    )


def _long() -> Problem:
    return Problem(
        code="HEAD_TOO_LARGE",
        expected=f"headers of at most {HEAD_BYTES} bytes",
        observed="more",
        hint="Send what is long as the body.",
    )
