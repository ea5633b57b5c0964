"""Keeping a registry sound, for administrators: verification, purges, garbage collection."""

from __future__ import annotations

from fastapi import APIRouter

from registry.api.auth import Administering, Guarded
from registry.api.bodies import CollectionIn, PurgeIn, VerificationIn
from registry.service import retire, verify
from registry.service.results import Collected, Purged, Verified

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["administration"])


@router.post("/verifications")
def post_verification(context: Administering, body: VerificationIn) -> Verified:
    """Check what is stored: `faults` is empty when all is well. `deep` reads every byte, `recompute` composes again,
    `base_files` re-hashes referenced base files where they lie."""
    return verify.verify(
        context,
        body.ref,
        deep=body.deep,
        recompute=body.recompute,
        expect_head=body.expect_head,
        base_files=body.base_files,
    )


@router.post("/purges", status_code=201)
def post_purge(context: Administering, body: PurgeIn) -> Purged:
    """Remove the bytes of a thing and leave a tombstone; its versions are never used again. 409 while it is live."""
    return retire.purge(context, body.ref, body.reason)


@router.post("/collections")
def post_collection(context: Administering, body: CollectionIn) -> Collected:
    """Remove blobs that nothing names when they are older than the grace."""
    return retire.gc(context, body.grace_s)
