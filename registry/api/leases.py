"""Leases of serving replicas, and what channels ask of what is published to them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from registry.api.auth import Administering, Guarded, Publishing, Reading
from registry.api.bodies import LeaseIn, PolicyBody, RenewIn
from registry.api.parameters import ChannelPath
from registry.service import leases, policies
from registry.service.results import DrainView, Lease
from schemas.publication import ChannelPolicy

LeaseId = Annotated[str, Path(description="Of a lease, as it was answered.", max_length=64)]
Holder = Annotated[str, Query(description="The replica.", min_length=1, max_length=128)]
router = APIRouter(prefix="/v1", route_class=Guarded, tags=["publication"])


@router.post("/channels/{name}/leases", status_code=201)
def post_lease(context: Publishing, name: ChannelPath, body: LeaseIn) -> Lease:
    """Bind a replica's new work to the newest generation."""
    return leases.acquire(context, name, body.holder, body.ttl_s)


@router.get("/channels/{name}/leases")
def get_leases(context: Reading, name: ChannelPath) -> DrainView:
    """How far older generations have drained."""
    return leases.drain(context, name)


@router.get("/leases")
def get_leases_of_holder(context: Reading, holder: Holder) -> tuple[Lease, ...]:
    """The leases of one replica that it has not released, on any channel."""
    return leases.of_holder(context, holder)


@router.put("/leases/{lease_id}")
def put_lease(context: Publishing, lease_id: LeaseId, body: RenewIn) -> Lease:
    """Hold on. 409 when it ran out."""
    return leases.renew(context, lease_id, body.ttl_s)


@router.delete("/leases/{lease_id}")
def delete_lease(context: Publishing, lease_id: LeaseId) -> Lease:
    """Let go after the last use. 409 when it ran out."""
    return leases.release(context, lease_id)


@router.get("/channels/{name}/policy")
def get_policy(context: Reading, name: ChannelPath) -> ChannelPolicy:
    """What a channel asks of what is published to it."""
    return policies.show(context, name)


@router.put("/channels/{name}/policy")
def put_policy(context: Administering, name: ChannelPath, body: PolicyBody) -> ChannelPolicy:
    """Give a channel a policy; the next publication is held to it."""
    return policies.put(context, name, body.document())
