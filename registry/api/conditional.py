"""`If-None-Match`: a reader who has the answer already gets 304 and no body (RFC 9110, section 13.1.2)."""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TAG: Final = re.compile(r'(?:W/)?("[^"]*")')
_OF_THE_BODY: Final = ("content-length", "content-type")


class NotModified:
    """ASGI middleware that turns a 200 whose ETag the caller named into a 304."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        named = Headers(scope=scope).get("if-none-match") if scope["type"] == "http" else None
        if named is None or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        dropping = False

        async def unless_known(message: Message) -> None:
            nonlocal dropping
            if message["type"] == "http.response.start":
                dropping = message["status"] == 200 and _matches(named, Headers(raw=message["headers"]).get("etag"))
                await send(_not_modified(message) if dropping else message)
            elif not dropping:
                await send(message)
            elif not message.get("more_body", False):
                await send({"type": "http.response.body", "body": b""})

        await self._app(scope, receive, unless_known)


def _matches(named: str, tag: str | None) -> bool:
    if tag is None:
        return False
    known = _TAG.match(tag)
    return named.strip() == "*" or (known is not None and known[1] in _TAG.findall(named))


def _not_modified(message: Message) -> Message:
    headers = MutableHeaders(raw=list(message["headers"]))
    for name in _OF_THE_BODY:
        del headers[name]
    return {**message, "status": 304, "headers": headers.raw}
