"""The part of the client that speaks of routers, states, contracts and evaluations."""

from __future__ import annotations

from registry.service import contracts
from registry.service.context import Context
from registry.service.results import Added, ContractDifference
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
