"""Every answer carries `X-Request-Id`: the one that the caller gave, or one that is drawn."""

from __future__ import annotations

import re
import uuid
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "X-Request-Id"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,128}")


class RequestIds:
    """ASGI middleware that names a request; the name lies in `request.state.request_id` for logs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        named = _given(Headers(scope=scope)) or uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = named

        async def with_name(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = named
            await send(message)

        await self._app(scope, receive, with_name)


def _given(headers: Headers) -> str | None:
    """A name that is safe to write into a log line and a header."""
    given = headers.get(HEADER)
    return given if given is not None and _PLAIN.fullmatch(given) else None
