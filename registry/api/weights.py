"""Weights of a base, one at a time: what a caller compares an adapter with before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from registry.api.auth import Guarded, Reading
from registry.api.parameters import DigestPath
from registry.formats.weights import WeightPlace
from registry.service.base_bytes import weight_place

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["reading"])
WeightName = Annotated[
    str, Query(description="As the manifest names it.", min_length=1, max_length=512, examples=["pooler.dense.weight"])
]
_TYPE: Final = "application/octet-stream"
_BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Its numbers, row by row, in the dtype and shape that the manifest says.",
        "content": {_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}
_BLOCK: Final = 2**20


@router.get("/manifests/{digest}/weight", response_class=StreamingResponse, responses=_BYTES)
def get_weight(context: Reading, digest: DigestPath, name: WeightName) -> StreamingResponse:
    """The bytes of one weight of a base, where the server can read them; 404 where it cannot."""
    place = weight_place(context, digest, name)
    return StreamingResponse(_blocks(place), 200, {"Content-Length": str(place.length)}, _TYPE)


def _blocks(place: WeightPlace) -> Iterator[bytes]:
    with place.path.open("rb") as file:
        file.seek(place.offset)
        left = place.length
        while left and (block := file.read(min(left, _BLOCK))):
            left -= len(block)
            yield block
