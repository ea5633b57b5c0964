"""Who is calling is settled by the headers: a caller who may not do something brings no byte of a body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from fastapi import FastAPI
from starlette.types import Message

from registry.api.app import create_app
from registry.service.context import Context
from tests.support.web import bearer

METHODS = ("post", "put", "patch")


def answered(app: FastAPI, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, int]:
    """The status, and how often the body was asked for."""
    asked = 0
    sent: list[Message] = []

    async def receive() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(key.lower().encode(), value.encode()) for key, value in headers.items()]
    scope = {"type": "http", "method": method.upper(), "path": path, "query_string": b"", "headers": raw}
    asyncio.run(app(scope | {"app": app, "root_path": ""}, receive, send))
    return sent[0]["status"], asked


def test_no_route_reads_a_body_of_a_caller_who_may_not_use_it(light: Context) -> None:
    app = create_app(light)
    routes = [
        (method, re.sub(r"{\w+}", "x", path), kind)
        for path, item in app.openapi()["paths"].items()
        for method in METHODS
        for kind in item.get(method, {}).get("requestBody", {}).get("content", ())
    ]
    assert {kind for *_, kind in routes} == {"application/json", "multipart/form-data", "application/octet-stream"}
    reading = bearer(light, "read:none-")
    for method, path, kind in routes:
        head = {"Content-Type": f"{kind}; boundary=x", "Content-Length": str(2**20)}
        assert answered(app, method, path, head) == (401, 0), path
        assert answered(app, method, path, head | reading) == (403, 0), path
