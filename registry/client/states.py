"""The part of the client that speaks of what surrounds adapters: routers, states, contracts, releases."""

from __future__ import annotations

from pathlib import Path

from registry.service import cache, contracts, histories, routers, routes
from registry.service.context import Context
from registry.service.results import Added, CacheIdentity, ContractDifference, StateReport
from schemas.canonical import JsonObject


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
