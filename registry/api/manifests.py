"""Reading what is registered: references, manifests, names, lineage, differences."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import StringConstraints

from registry.api.answers import linked, shown, written
from registry.api.auth import Guarded, Reading
from registry.api.parameters import After, DigestPath, IfNoneMatch, Limit, RefPath, RefQuery
from registry.db.manifests import ManifestFilter
from registry.service import look
from registry.service.results import Difference, FileEntry, Lineage, NamePage, Page, Shown

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["reading"])
Kind = Literal[
    "base", "factor", "adapter", "composition", "compute_contract", "router", "continual_state", "candidate",
    "resolved_route", "transaction", "evaluation", "conversion", "admission", "publication", "statement",
]  # fmt: skip
Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Labels = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]+$", max_length=1300)], ...],
    Query(description="KEY=VALUE of a label that it has now; given several times, all of them.", max_length=16),
]


@router.get("/refs/{ref}", response_model=Shown)
def get_ref(context: Reading, ref: RefPath, _known: IfNoneMatch = None) -> Response:
    """What a reference means: the manifest, and everything that is known beside it."""
    return shown(look.show(context, ref))


@router.get("/manifests")
def get_manifests(
    context: Reading,
    request: Request,
    response: Response,
    kind: Kind | None = None,
    base: RefQuery | None = None,
    family: Word | None = None,
    method: Word | None = None,
    outcome: Literal["admitted", "conditional", "refused"] | None = None,
    label: Labels = (),
    after: After = None,
    limit: Limit = 50,
) -> Page:
    """A keyset page, newest first; `next` (also as a Link header) continues it."""
    labels = tuple((key, value) for key, _, value in (item.partition("=") for item in label))
    wanted = ManifestFilter(kind=kind, base=base, family=family, method=method, outcome=outcome, labels=labels)
    page = look.ls(context, wanted, after, limit)
    linked(request, response, page.next)
    return page


@router.get("/manifests/{digest}", response_model=Shown)
def get_manifest(context: Reading, digest: DigestPath, _known: IfNoneMatch = None) -> Response:
    """One manifest, re-hashed on the way, and what lies beside it."""
    return shown(look.show(context, digest))


@router.get("/manifests/{digest}/files")
def get_manifest_files(context: Reading, digest: DigestPath) -> tuple[FileEntry, ...]:
    """The files of every packaging of it; each `blob` can be fetched under `/v1/blobs`."""
    return look.show(context, digest).files


@router.get("/lineage/{ref}", response_model=Lineage)
def get_lineage(
    context: Reading, ref: RefPath, direction: Literal["up", "down"] = "up", live: bool = False
) -> Response:
    """Ancestors or descendants, and with `live` the channels that serve it or something made of it."""
    return written(look.line(context, ref, direction, live=live))


@router.get("/diff")
def get_diff(context: Reading, left: RefQuery, right: RefQuery) -> tuple[Difference, ...]:
    """Fields in which two manifests differ."""
    return look.diff(context, left, right)


@router.get("/names")
def get_names(
    context: Reading,
    request: Request,
    response: Response,
    prefix: Annotated[str, Query(description="How they begin.", pattern="^[a-z0-9._-]{0,96}$")] = "",
    kind: Kind | None = None,
    after: After = None,
    limit: Limit = 50,
) -> NamePage:
    """Names in order, each with its newest version."""
    page = look.names(context, prefix, kind, after, limit)
    linked(request, response, page.next)
    return page
