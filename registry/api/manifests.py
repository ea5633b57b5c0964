"""Reading manifests, references and lineage."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from registry.api.auth import Reading
from registry.client import ManifestFilter
from registry.service import look
from registry.service.results import Lineage, Page, Shown

router = APIRouter(prefix="/v1", tags=["reading"])


@router.get("/refs/{ref}")
def get_ref(context: Reading, ref: str, response: Response) -> Shown:
    """What a reference means: NAME, NAME@VERSION, NAME@ALIAS, blake3:HEX or channel:NAME@gN."""
    return _tagged(response, look.show(context, ref))


@router.get("/manifests/{digest}")
def get_manifest(context: Reading, digest: str, response: Response) -> Shown:
    """One manifest and what lies beside it."""
    return _tagged(response, look.show(context, digest))


@router.get("/manifests")
def list_manifests(
    context: Reading,
    response: Response,
    kind: str | None = None,
    base: str | None = None,
    family: str | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Page:
    """A keyset page, newest first; `next` (also as a Link header) continues it."""
    page = look.ls(context, ManifestFilter(kind=kind, base=base, family=family), after, limit)
    if page.next is not None:
        response.headers["Link"] = f'</v1/manifests?after={page.next}&limit={limit}>; rel="next"'
    return page


@router.get("/lineage/{digest}")
def get_lineage(context: Reading, digest: str, direction: Literal["up", "down"] = "up", live: bool = False) -> Lineage:
    """Ancestors or descendants, and with `live` the channels that serve it or something made of it."""
    return look.line(context, digest, direction, live=live)


def _tagged(response: Response, shown: Shown) -> Shown:
    response.headers["ETag"] = f'"{shown.digest}"'
    return shown
