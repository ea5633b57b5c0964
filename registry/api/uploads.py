"""Resumable uploads: begin, send pieces, ask where it stands, finish under a digest."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field

from registry.api.arrival import Arrivals
from registry.api.auth import Guarded, Registering
from registry.errors import RefusedError
from registry.service.context import Context
from registry.service.intake import Receiving
from registry.service.uploads import HeldBlob, Upload, Uploads
from schemas.canonical import SAFE_INTEGER
from schemas.digests import Digest
from schemas.model import Record

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["blobs"])
BYTES_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": False,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
AnyDigest = Annotated[str, Query(pattern=r"^(blake3|sha256):[0-9a-f]{64}$", description="What the bytes must be.")]
UploadId = Annotated[str, Path(description="The id that POST gave.", examples=["5f2b6c0c8d1e4f37a9b0c1d2e3f40516"])]
_OFFSET: Final = {"Upload-Offset": {"description": "Bytes that are here.", "schema": {"type": "integer"}}}


class UploadIn(Record):
    """What is about to come. With its digest, the same caller finds the upload again and goes on where it stands."""

    digest: Digest | None = None
    size: int | None = Field(default=None, ge=0, le=SAFE_INTEGER)
    name: str | None = Field(
        default=None, max_length=255, description="What the file is called; *.safetensors are checked as they arrive."
    )


@router.post(
    "/uploads",
    status_code=201,
    responses={200: {"model": Upload, "description": "Begun before by the same caller, and not yet finished."}},
)
def post_upload(context: Registering, request: Request, response: Response, wish: UploadIn) -> Upload:
    """Begin an upload; it is kept for a day after its last byte."""
    upload, new = _uploads(request).begin(context, wish.digest, wish.size, wish.name)
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/v1/uploads/{upload.id}"
    return _at(response, upload)


@router.get("/uploads/{upload}")
def get_upload(context: Registering, request: Request, response: Response, upload: UploadId) -> Upload:
    """Where an upload stands."""
    return _at(response, _uploads(request).look(context, upload))


@router.head("/uploads/{upload}", status_code=204, responses={204: {"headers": _OFFSET}})
def head_upload(context: Registering, request: Request, upload: UploadId) -> Response:
    """Where an upload stands, in `Upload-Offset`."""
    return _offset(_uploads(request).look(context, upload).offset)


@router.patch("/uploads/{upload}", status_code=204, openapi_extra=BYTES_BODY, responses={204: {"headers": _OFFSET}})
async def patch_upload(
    context: Registering,
    request: Request,
    upload: UploadId,
    upload_offset: Annotated[int, Header(ge=0, le=SAFE_INTEGER, description="Where these bytes begin.")],
) -> Response:
    """The next bytes, as many as the sender likes; on disk when it is answered. 416 says where it stands instead.

    What arrived of a body that broke off is kept.
    """
    arrivals = _arrivals(request)
    with arrivals.room():
        receiving = await arrivals.run(partial(_uploads(request).open, context, upload, upload_offset))
        return _offset(await receive(context, request, upload, receiving))


@router.put("/uploads/{upload}", status_code=201)
async def put_upload(context: Registering, request: Request, upload: UploadId, digest: AnyDigest) -> HeldBlob:
    """Finish an upload: its bytes become a blob when they have this digest; asked again, the same answer."""
    return await _arrivals(request).run(partial(_uploads(request).finish, context, upload, digest))


@router.delete("/uploads/{upload}", status_code=204)
def delete_upload(context: Registering, request: Request, upload: UploadId) -> None:
    """End an upload and forget what came of it."""
    _uploads(request).end(context, upload)


async def receive(context: Context, request: Request, upload: str, receiving: Receiving) -> int:
    """Take a request's body into an upload; what is refused ends it, whatever else happens keeps what has come."""
    arrivals, uploads = request.app.state.arrivals, request.app.state.uploads
    refused = False
    try:
        await arrivals.pump(request.receive, receiving.take)
    except RefusedError:
        refused = True
        raise
    finally:
        end = uploads.end if refused else uploads.pause
        offset: int = await arrivals.run(partial(end, context, upload, receiving))
    return offset


def _uploads(request: Request) -> Uploads:
    uploads: Uploads = request.app.state.uploads
    return uploads


def _arrivals(request: Request) -> Arrivals:
    arrivals: Arrivals = request.app.state.arrivals
    return arrivals


def _at(response: Response, upload: Upload) -> Upload:
    response.headers["Upload-Offset"] = str(upload.offset)
    return upload


def _offset(offset: int) -> Response:
    return Response(status_code=204, headers={"Upload-Offset": str(offset)})
