"""Blobs by digest: fetched whole or in part, asked for, or put in one request."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.responses import StreamingResponse

from registry.api.auth import Guarded, Reading, Registering
from registry.api.uploads import BYTES_BODY, receive
from registry.errors import NotFoundError, Problem, RangeUnsatisfiableError
from registry.service.context import Context
from registry.service.uploads import HeldBlob, Uploads, held_blob

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["blobs"])
AnyDigest = Annotated[
    str, Path(pattern=r"^(blake3|sha256):[0-9a-f]{64}$", description="blake3: or sha256: and 64 lowercase hex digits.")
]
BlakeDigest = Annotated[str, Path(pattern=r"^blake3:[0-9a-f]{64}$", description="What the bytes must be.")]
Condition = Annotated[str | None, Header()]
_TYPE: Final = "application/octet-stream"
_RANGE: Final = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))")
_BYTES: Final[dict[str, Any]] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The whole blob.", "content": _BYTES},
    206: {"description": "The range asked for.", "content": _BYTES},
    304: {"description": "The caller has it."},
}


@router.head("/blobs/{digest}", responses={200: {"description": "The store holds it."}})
def head_blob(context: Reading, digest: AnyDigest) -> Response:
    """Whether the store holds a blob, and how long it is."""
    blob = held_blob(context, digest)
    return Response(headers={**_headers(blob), "Content-Length": str(blob.size)}, media_type=_TYPE)


@router.get("/blobs/{digest}", response_class=StreamingResponse, responses=_ANSWERS)
def get_blob(
    context: Reading,
    digest: AnyDigest,
    range: Condition = None,
    if_none_match: Condition = None,
    if_range: Condition = None,
) -> Response:
    """A blob, or one range of it (`bytes=a-b`, `a-` or `-n`); as it lies in the store: check it by its digest.

    Several ranges, or one that cannot be read, are answered with the whole, as RFC 9110 allows.
    """
    blob = held_blob(context, digest)
    headers = _headers(blob)
    if if_none_match is not None and _names(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    asked = range if if_range is None or if_range.strip() == headers["ETag"] else None
    part = _part(asked, blob.size)
    return _streamed(context, blob, headers, part)


@router.put("/blobs/{digest}", status_code=201, openapi_extra=BYTES_BODY)
async def put_blob(context: Registering, request: Request, digest: BlakeDigest) -> HeldBlob:
    """Store a body of any length under its digest, streamed; nothing is kept of one that breaks off or differs."""
    arrivals, uploads = request.app.state.arrivals, request.app.state.uploads
    with arrivals.room():
        upload, _ = await arrivals.run(partial(uploads.begin, context, digest, _length(request), anew=True))
        receiving = await arrivals.run(partial(uploads.open, context, upload.id, 0))
        whole = False
        try:
            await receive(context, request, upload.id, receiving)
            held: HeldBlob = await arrivals.run(partial(uploads.finish, context, upload.id, digest))
            whole = True
        finally:
            if not whole:
                await arrivals.run(partial(_forget, uploads, context, upload.id))
        return held


def _forget(uploads: Uploads, context: Context, upload: str) -> None:
    with suppress(NotFoundError):
        uploads.end(context, upload)


def _length(request: Request) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else None


def _streamed(
    context: Context, blob: HeldBlob, headers: Mapping[str, str], part: tuple[int, int] | None
) -> StreamingResponse:
    start, end = part or (0, blob.size)
    given = {**headers, "Content-Length": str(end - start)}
    if part is not None:
        given["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
    blocks = context.store.stream(blob.digest, start, end)
    return StreamingResponse(blocks, 200 if part is None else 206, given, _TYPE)


def _headers(blob: HeldBlob) -> dict[str, str]:
    sha256 = b64encode(bytes.fromhex(blob.sha256.removeprefix("sha256:"))).decode()
    return {
        "ETag": f'"{blob.digest}"',
        "Repr-Digest": f"sha-256=:{sha256}:",
        "X-Registry-Digest": blob.digest,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
    }


def _names(condition: str, tag: str) -> bool:
    """Whether If-None-Match names this entity tag; a weak tag counts (RFC 9110, section 13.1.2)."""
    return any(item.strip().removeprefix("W/") in {tag, "*"} for item in condition.split(","))


def _part(asked: str | None, size: int) -> tuple[int, int] | None:
    """The bytes ``[start, end)`` of one range; None for the whole.

    Raises:
        RangeUnsatisfiableError: `BLOB_RANGE`, it lies outside.
    """
    found = None if asked is None else _RANGE.fullmatch(asked.strip())
    if asked is None or found is None:
        return None
    first, last, suffix = found.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    else:
        start, end = int(first), size if last is None else min(size, int(last) + 1)
        if last is not None and int(last) < start:
            return None
    if start >= end:
        raise RangeUnsatisfiableError(_outside(asked, size), size)
    return start, end


def _outside(asked: str, size: int) -> Problem:
    return Problem(
        code="BLOB_RANGE",
        expected=f"a range within {size} bytes",
        observed=asked[:80],
        hint="Ask inside the blob; its length is in Content-Range.",
    )
