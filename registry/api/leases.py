"""Leases of serving replicas, and what channels ask of what is published to them."""

from __future__ import annotations

from fastapi import APIRouter

from registry.api.auth import Administering, Publishing, Reading
from registry.service import leases, policies
from registry.service.results import DrainView, Lease
from schemas.model import Finite, Record
from schemas.publication import ChannelPolicy

router = APIRouter(prefix="/v1", tags=["publication"])


class LeaseIn(Record):
    """Who holds, and for how many seconds of the database's time."""

    holder: str
    ttl_s: Finite = 60.0


class RenewIn(Record):
    """For how many seconds more."""

    ttl_s: Finite = 60.0


@router.post("/channels/{name}/leases", status_code=201)
def post_lease(context: Publishing, name: str, body: LeaseIn) -> Lease:
    """Bind a replica's new work to the newest generation."""
    return leases.acquire(context, name, body.holder, body.ttl_s)


@router.get("/channels/{name}/leases")
def get_leases(context: Reading, name: str) -> DrainView:
    """How far older generations have drained."""
    return leases.drain(context, name)


@router.get("/leases")
def get_leases_of_holder(context: Reading, holder: str) -> tuple[Lease, ...]:
    """The leases of one replica that it has not released, on any channel."""
    return leases.of_holder(context, holder)


@router.put("/leases/{lease_id}")
def put_lease(context: Publishing, lease_id: str, body: RenewIn) -> Lease:
    """Hold on. 409 when it ran out."""
    return leases.renew(context, lease_id, body.ttl_s)


@router.delete("/leases/{lease_id}")
def delete_lease(context: Publishing, lease_id: str) -> Lease:
    """Let go after the last use. 409 when it ran out."""
    return leases.release(context, lease_id)


@router.get("/channels/{name}/policy")
def get_policy(context: Reading, name: str) -> ChannelPolicy:
    """What a channel asks of what is published to it."""
    return policies.show(context, name)


@router.put("/channels/{name}/policy")
def put_policy(context: Administering, name: str, body: ChannelPolicy) -> ChannelPolicy:
    """Give a channel a policy; the next publication is held to it."""
    return policies.put(context, name, body.document())
