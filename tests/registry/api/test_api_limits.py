"""The time a body may take and what ends a connection, on the middleware alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from registry.api.limits import BodyLimit
from registry.api.serving import Serving
from registry.service.context import Context
from registry.settings import Settings
from tests.support.web import Api, bearer

Answered = tuple[int, dict[bytes, bytes], Any]


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that reads its whole body."""
    body = await Request(scope, receive).body()
    await Response(str(len(body)))(scope, receive, send)


async def hasty(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers before it has read anything."""
    await Response(b"0")(scope, receive, send)


def scope_of(path: str = "/v1/names", method: str = "POST", **headers: str) -> Scope:
    raw = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw}


def answer(
    app: Callable[[Scope, Receive, Send], Awaitable[None]], scope: Scope, *chunks: bytes, ends: bool = True
) -> Answered:
    """What the middleware answers to a body of these chunks, after which nothing comes unless it `ends`."""

    async def run() -> Answered:
        left = list(chunks)
        sent: list[Message] = []

        async def receive() -> Message:
            if not left:
                await asyncio.sleep(60)
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or not ends}

        async def send(message: Message) -> None:
            sent.append(message)

        await BodyLimit(app, limit=10, streamed=20, idle_s=0.05)(scope, receive, send)
        (start, *bodies) = sent
        data = b"".join(message.get("body", b"") for message in bodies)
        return start["status"], dict(start["headers"]), json.loads(data)

    return asyncio.run(run())


def test_a_body_that_stands_still_is_answered_408() -> None:
    status, headers, body = answer(reading, scope_of(content_length="9"), b"abc", ends=False)
    assert (status, body["code"], headers[b"connection"]) == (408, "BODY_SLOW", b"close")


def test_a_chunked_body_is_stopped_at_its_limit() -> None:
    status, headers, body = answer(reading, scope_of(transfer_encoding="chunked"), b"abcdef", b"ghijkl", ends=False)
    assert (status, body["code"], headers[b"connection"]) == (413, "BODY_TOO_LARGE", b"close")


@pytest.mark.parametrize(("method", "path"), [("PATCH", "/v1/uploads/x"), ("PUT", "/v1/blobs/x")])
def test_streamed_bodies_have_a_limit_of_their_own(method: str, path: str) -> None:
    assert answer(reading, scope_of(path, method, content_length="12"), b"abcdef", b"ghijkl")[0] == 200
    assert answer(reading, scope_of(path, method, content_length="21"), b"x")[0] == 413


def test_a_whole_body_is_handed_on_and_the_connection_kept() -> None:
    status, headers, body = answer(reading, scope_of(content_length="6"), b"abc", b"def")
    assert (status, body) == (200, 6)
    assert b"connection" not in headers


def test_an_answer_before_the_body_was_read_ends_the_connection() -> None:
    status, headers, _ = answer(hasty, scope_of(content_length="6"), b"abcdef")
    assert (status, headers[b"connection"]) == (200, b"close")
    assert b"connection" not in answer(hasty, scope_of())[1]


def test_the_largest_file_is_a_setting_and_no_form_is_larger(light: Context) -> None:
    serving = Serving(Settings(upload_limit=2**20), jobs=False)
    api = Api(TestClient(serving.application(light)), bearer(light, "register"))
    large = bytes(2**20 + 1)
    blob = api.ask("PUT", f"/v1/blobs/blake3:{'0' * 64}", content=large)
    form = api.ask("POST", "/v1/adapters", data={"name": "x", "base": "y"}, files=[("files", ("a.bin", large))])
    assert [(answer.status_code, answer.json()["code"]) for answer in (blob, form)] == [(413, "BODY_TOO_LARGE")] * 2
    assert api.post("/v1/uploads", {"size": len(large)}).json()["code"] == "BLOB_TOO_LARGE"
