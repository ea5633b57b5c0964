"""What a request body may be, held while it arrives: its bytes, its encoding, and the time it takes."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from registry.api.problems import problem_response
from registry.errors import Problem, ProblemError, SlowBodyError, TooLargeError, UsageProblemError
from registry.service.uploads import LARGEST_UPLOAD

BODY_LIMIT: Final = 256 * 2**20
"""Bytes of a form with files."""
DOCUMENT_LIMIT: Final = 32 * 2**20
"""Bytes of any other body that is read whole."""
IDLE_S: Final = 30.0
"""How long a body may stand still."""
SLOWEST: Final = 1024
"""Bytes a second that a body must bring on average, after its first minute."""
_FIRST_S: Final = 60.0
_STREAMED: Final = ("/v1/uploads/", "/v1/blobs/")


class BodyLimit:
    """ASGI middleware that stops reading a body that breaks a rule and answers, whatever the application made of it.

    `limit` is for forms (and documents, where it is the smaller one), `streamed` for bodies that are never held whole;
    no form is larger than those.
    A connection whose body was not read to its end is closed: reading on would be work for nothing.
    """

    def __init__(self, app: ASGIApp, limit: int, streamed: int = LARGEST_UPLOAD, idle_s: float = IDLE_S) -> None:
        self._app = app
        self._limit = limit
        self._streamed = streamed
        self._idle_s = idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, Headers(scope=scope), self._allowed(scope), self._idle_s)
        body.check_head()
        if body.refusal is None:
            with suppress(_RefusedBodyError, ClientDisconnect):
                await self._app(scope, body.receive, body.send)
        if body.refusal is not None and not body.answered:
            await problem_response(Request(scope), body.refusal)(scope, receive, body.answer)

    def _allowed(self, scope: Scope) -> int:
        if scope["method"] in {"PATCH", "PUT"} and scope["path"].startswith(_STREAMED):
            return self._streamed
        if Headers(scope=scope).get("content-type", "").startswith("multipart/"):
            return min(self._limit, self._streamed)
        return min(self._limit, DOCUMENT_LIMIT)


class _RefusedBodyError(ConnectionAbortedError):
    """Ends the application's reading; the middleware knows why."""


class _Body:
    """One request's body between server and application."""

    def __init__(self, receive: Receive, send: Send, headers: Headers, limit: int, idle_s: float) -> None:
        self._receive = receive
        self._send = send
        self._headers = headers
        self._limit = limit
        self._idle_s = idle_s
        self._seen = 0
        self._waited_s = 0.0
        self._open = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self.refusal: ProblemError | None = None
        self.answered = False

    def check_head(self) -> None:
        """What the headers alone decide."""
        length = self._headers.get("content-length", "")
        if self._headers.get("content-encoding", "identity").lower() != "identity":
            self.refusal = UsageProblemError(_encoded(self._headers["content-encoding"]))
        elif length.isascii() and length.isdigit() and int(length) > self._limit:
            self.refusal = TooLargeError(_too_large(self._limit, length))

    async def receive(self) -> Message:
        """The next message; once the body is whole, whatever comes."""
        if not self._open:
            return await self._receive()
        begun = time.monotonic()
        try:
            async with asyncio.timeout(self._idle_s):
                message = await self._receive()
        except TimeoutError:
            self.refusal = SlowBodyError(_slow(f"{self._seen} bytes, then nothing for {self._idle_s:g} s"))
            raise _RefusedBodyError from None
        finally:
            self._waited_s += time.monotonic() - begun
        if message["type"] == "http.disconnect":
            self.refusal = SlowBodyError(_slow(f"{self._seen} bytes, then the sender went away"))
            return message
        self._seen += len(message.get("body", b""))
        self._open = message.get("more_body", False)
        if self._seen > self._limit:
            self.refusal = TooLargeError(_too_large(self._limit, "more"))
        if self._seen < SLOWEST * (self._waited_s - _FIRST_S) and self._open:
            self.refusal = SlowBodyError(_slow(f"{self._seen} bytes in {self._waited_s:.0f} s"))
        if self.refusal is not None:
            raise _RefusedBodyError
        return message

    async def send(self, message: Message) -> None:
        """What the application answers, unless its body was refused meanwhile."""
        if self.refusal is None or self.answered:
            await self.answer(message)

    async def answer(self, message: Message) -> None:
        """Send, and end the connection when there is more of a body than was read."""
        if message["type"] == "http.response.start":
            self.answered = True
            if self._open:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)


def _too_large(limit: int, observed: str) -> Problem:
    return Problem(
        code="BODY_TOO_LARGE",
        expected=f"at most {limit} bytes",
        observed=observed[:40],
        hint="Send large files as resumable uploads (POST /v1/uploads), then register them by their digests.",
    )


def _encoded(observed: str) -> Problem:
    return Problem(
        code="BODY_ENCODED",
        expected="a body as it is",
        observed=f"Content-Encoding: {observed[:40]}",
        hint="Send it without Content-Encoding.",
    )


def _slow(observed: str) -> Problem:
    return Problem(
        code="BODY_SLOW",
        expected=f"a body that goes on arriving, at {SLOWEST} bytes a second or more",
        observed=observed,
        hint="Send it again on a better connection; an upload goes on where it stood.",
    )
