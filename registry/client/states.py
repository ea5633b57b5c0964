"""The part of the client that speaks of what surrounds adapters: routers, states, contracts, releases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from registry.client.later import later

if TYPE_CHECKING:
    from registry.service import cache, contracts, evaluations, histories, leases, policies, routers, routes
    from registry.service.context import Context
    from registry.service.results import (
        Added,
        CacheIdentity,
        ContractDifference,
        DrainView,
        EvaluationReport,
        Lease,
        StateReport,
    )
    from schemas.canonical import JsonObject
    from schemas.publication import ChannelPolicy
else:
    cache, contracts, evaluations, histories, leases, policies, routers, routes = later(
        "registry.service", "cache contracts evaluations histories leases policies routers routes"
    )


class States:
    """Use cases about what surrounds adapters, bound to one context."""

    context: Context

    def add_compute_contract(self, document: JsonObject, name: str) -> Added:
        """Register a compute contract."""
        return contracts.add_contract(self.context, document, name)

    def contract_diff(self, left: str, right: str) -> ContractDifference:
        """Fields in which two compute contracts differ."""
        return contracts.diff(self.context, left, right)

    def add_router(self, document: JsonObject, name: str, tensors: Path | None = None) -> Added:
        """Register a router with the file that holds its tensors."""
        return routers.add_router(self.context, document, name, tensors)

    def add_continual_state(self, document: JsonObject, name: str) -> Added:
        """Register the state after a task."""
        return histories.add_state(self.context, document, name)

    def state_report(self, ref: str) -> StateReport:
        """What a continual state costs, and how its tasks fared."""
        return histories.report(self.context, ref)

    def add_resolved_route(self, document: JsonObject, name: str) -> Added:
        """Register one request's choices."""
        return routes.add_route(self.context, document, name)

    def add_transaction(self, document: JsonObject, name: str) -> Added:
        """Register what one request was bound to."""
        return routes.add_transaction(self.context, document, name)

    def cache_identity(self, channel: str, generation: int | None = None) -> CacheIdentity:
        """The static part of a prefix key, and the fields a server adds."""
        return cache.show(self.context, channel, generation)

    def acquire_lease(self, channel: str, holder: str, ttl_s: float = 60.0) -> Lease:
        """Bind a replica's new work to the newest generation."""
        return leases.acquire(self.context, channel, holder, ttl_s)

    def renew_lease(self, lease_id: str, ttl_s: float = 60.0) -> Lease:
        """Hold on to a generation."""
        return leases.renew(self.context, lease_id, ttl_s)

    def release_lease(self, lease_id: str) -> Lease:
        """Let go of a generation after its last use."""
        return leases.release(self.context, lease_id)

    def leases_of(self, holder: str) -> tuple[Lease, ...]:
        """The leases of one replica that it has not released."""
        return leases.of_holder(self.context, holder)

    def drain(self, channel: str) -> DrainView:
        """How far a channel's older generations have drained."""
        return leases.drain(self.context, channel)

    def add_evaluation(self, document: JsonObject, name: str) -> Added:
        """Register an evaluation."""
        return evaluations.add_evaluation(self.context, document, name)

    def evaluation_report(self, ref: str) -> EvaluationReport:
        """What an evaluation's contrasts say."""
        return evaluations.report(self.context, ref)

    def channel_policy(self, channel: str) -> ChannelPolicy:
        """What a channel asks of what is published to it."""
        return policies.show(self.context, channel)

    def set_channel_policy(self, channel: str, document: JsonObject) -> ChannelPolicy:
        """Give a channel a policy."""
        return policies.put(self.context, channel, document)
