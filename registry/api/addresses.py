"""Addresses of plain text: a control character in a path or query is no part of any name, token or id."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from registry.api.problems import problem_response
from registry.errors import Problem, UsageProblemError

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class PlainAddresses:
    """ASGI middleware that refuses an address with control characters, before anything compares or stores them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and _CONTROL.search(
            scope["path"] + unquote(scope["query_string"].decode("latin-1"))
        ):
            await problem_response(Request(scope), _refusal())(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _refusal() -> UsageProblemError:
    return UsageProblemError(
        Problem(
            code="ADDRESS_INVALID",
            expected="a path and query of printable characters",
            observed="a control character",
            hint="Correct the address.",
        )
    )
