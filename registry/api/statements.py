"""Statements about a thing: labels, attestations, yanks, aliases. Nothing said ever renames it."""

from __future__ import annotations

from fastapi import APIRouter

from registry.api.auth import Guarded, Registering
from registry.api.bodies import AliasIn, AttestationIn, LabelsIn, YankIn
from registry.service import say
from registry.service.results import Aliased, Said

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["statements"])


@router.post("/labels", status_code=201)
def post_labels(context: Registering, body: LabelsIn) -> Said:
    """Set labels; null removes one."""
    return say.label(context, body.ref, dict(body.labels))


@router.post("/attestations", status_code=201)
def post_attestation(context: Registering, body: AttestationIn) -> Said:
    """Say something about a thing in fields of one's own."""
    return say.attest(context, body.ref, dict(body.body))


@router.post("/yanks", status_code=201)
def post_yank(context: Registering, body: YankIn) -> Said:
    """Let nothing new be built on it or published from it; what is live stays live."""
    return say.yank(context, body.ref, body.reason, undo=body.undo)


@router.post("/aliases", status_code=201)
def post_alias(context: Registering, body: AliasIn) -> Aliased:
    """Point an alias at a version; every move is kept."""
    return say.alias(context, body.ref, body.alias)
