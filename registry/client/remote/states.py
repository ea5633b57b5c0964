"""What surrounds adapters, and what replicas hold, by way of a server."""

from __future__ import annotations

import json
from pathlib import Path

from registry.client.remote import paths
from registry.client.remote.http import LONG, Http, parsed
from registry.formats.directory import open_file
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
from schemas.names import check_name
from schemas.publication import ChannelPolicy


class States:
    """Routers, states, contracts, routes, evaluations; leases and policies."""

    http: Http

    def add_compute_contract(self, document: JsonObject, name: str) -> Added:
        """Register a compute contract."""
        return self._document("compute-contracts", document, name)

    def contract_diff(self, left: str, right: str) -> ContractDifference:
        """Fields in which two compute contracts differ."""
        return self.http.get(ContractDifference, "/v1/compute-contracts/diff", {"left": left, "right": right})

    def add_router(self, document: JsonObject, name: str, tensors: Path | None = None) -> Added:
        """Register a router with the file that holds its tensors."""
        check_name(name)
        fields = {"name": name, "document": json.dumps(document)}
        files = {} if tensors is None else {"tensors": (tensors.name, _bytes_of(tensors))}
        answer = self.http.send("POST", "/v1/routers", form=(fields, files), timeout=LONG)
        return parsed(answer, Added.model_validate_json)

    def add_continual_state(self, document: JsonObject, name: str) -> Added:
        """Register the state after a task."""
        return self._document("continual-states", document, name)

    def state_report(self, ref: str) -> StateReport:
        """What a continual state costs, and how its tasks fared."""
        return self.http.get(StateReport, paths.of_ref("continual-states", ref, "report"))

    def add_resolved_route(self, document: JsonObject, name: str) -> Added:
        """Register one request's choices."""
        return self._document("resolved-routes", document, name)

    def add_transaction(self, document: JsonObject, name: str) -> Added:
        """Register what one request was bound to."""
        return self._document("transactions", document, name)

    def add_evaluation(self, document: JsonObject, name: str) -> Added:
        """Register an evaluation."""
        return self._document("evaluations", document, name)

    def evaluation_report(self, ref: str) -> EvaluationReport:
        """What an evaluation's contrasts say."""
        return self.http.get(EvaluationReport, paths.of_ref("evaluations", ref, "report"))

    def cache_identity(self, channel: str, generation: int | None = None) -> CacheIdentity:
        """The static part of a prefix key, and the fields a server adds."""
        return self.http.get(CacheIdentity, paths.of_channel(channel, "kv-identity"), {"generation": generation})

    def acquire_lease(self, channel: str, holder: str, ttl_s: float = 60.0) -> Lease:
        """Bind a replica's new work to the newest generation."""
        body: JsonObject = {"holder": holder, "ttl_s": ttl_s}
        return self.http.post(Lease, paths.of_channel(channel, "leases"), body, again=False)

    def renew_lease(self, lease_id: str, ttl_s: float = 60.0) -> Lease:
        """Hold on to a generation."""
        return self.http.put(Lease, paths.of_id("leases", lease_id), {"ttl_s": ttl_s})

    def release_lease(self, lease_id: str) -> Lease:
        """Let go of a generation after its last use."""
        return parsed(self.http.delete(paths.of_id("leases", lease_id)), Lease.model_validate_json)

    def leases_of(self, holder: str) -> tuple[Lease, ...]:
        """The leases of one replica that it has not released."""
        return self.http.get_all(Lease, "/v1/leases", {"holder": holder})

    def drain(self, channel: str) -> DrainView:
        """How far a channel's older generations have drained."""
        return self.http.get(DrainView, paths.of_channel(channel, "leases"))

    def channel_policy(self, channel: str) -> ChannelPolicy:
        """What a channel asks of what is published to it."""
        return self.http.get(ChannelPolicy, paths.of_channel(channel, "policy"))

    def set_channel_policy(self, channel: str, document: JsonObject) -> ChannelPolicy:
        """Give a channel a policy."""
        return self.http.put(ChannelPolicy, paths.of_channel(channel, "policy"), document)

    def _document(self, room: str, document: JsonObject, name: str) -> Added:
        return self.http.post(Added, f"/v1/{room}", {"name": name, "document": document})


def _bytes_of(path: Path) -> bytes:
    with open_file(path).open(path.name) as stream:
        return stream.read()
