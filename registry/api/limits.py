"""How many bytes a request body may have, held while they arrive."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from registry.api.problems import problem_response
from registry.errors import Problem, TooLargeError

BODY_LIMIT: Final = 256 * 2**20


class BodyLimit:
    """ASGI middleware that stops reading a body at the limit and answers 413, whatever the application made of it."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise ConnectionAbortedError
            return message

        async def unless_too_much(message: Message) -> None:
            if seen <= self._limit:
                await send(message)

        with suppress(ConnectionAbortedError):
            await self._app(scope, counted, unless_too_much)
        if seen > self._limit:
            await problem_response(Request(scope), self._error())(scope, receive, send)

    def _error(self) -> TooLargeError:
        return TooLargeError(
            Problem(
                code="BODY_TOO_LARGE",
                expected=f"at most {self._limit} bytes",
                observed="more",
                hint="Register large files with the command line on the server's machine.",
            )
        )
