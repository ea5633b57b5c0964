"""Resolved routes and transactions: one request's choices, and what it is bound to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from registry.db import Reader, channels, manifests, refs
from registry.service import documents
from registry.service.cache import kv_identity
from registry.service.context import Context
from registry.service.results import Added
from schemas.canonical import JsonObject
from schemas.decision import Finding
from schemas.names import ChannelRef
from schemas.release import CandidateManifest, ResolvedRouteManifest, TransactionManifest
from schemas.router import RouterManifest
from validators.routes.requests import judge_route, judge_transaction

ROUTE_REFERENCES: Final = frozenset({"router", "adapter"})
TRANSACTION_REFERENCES: Final = frozenset({"candidate", "route", "kv_route"})


def add_route(context: Context, document: JsonObject, name: str) -> Added:
    """Register a resolved route, so that preemption and replay restore it instead of choosing again."""
    found = documents.resolved(context, document, ROUTE_REFERENCES)
    return documents.add_document(context, found, name, ResolvedRouteManifest, _judge_route)


def add_transaction(context: Context, document: JsonObject, name: str) -> Added:
    """Register what one request was bound to; its cache must belong to its route and generation."""
    found = documents.resolved(context, document, TRANSACTION_REFERENCES)
    return documents.add_document(context, found, name, TransactionManifest, _judge_transaction)


def _judge_route(reader: Reader, route: ResolvedRouteManifest) -> Iterable[Finding]:
    return list(judge_route(route, manifests.load(reader, route.router, RouterManifest)))


def _judge_transaction(reader: Reader, transaction: TransactionManifest) -> Iterable[Finding]:
    row = channels.at(reader, transaction.channel, transaction.generation)
    artifacts = refs.artifacts(reader, ChannelRef(transaction.channel, row.number))
    return list(
        judge_transaction(
            transaction,
            manifests.load(reader, transaction.candidate, CandidateManifest),
            manifests.load(reader, transaction.route, ResolvedRouteManifest),
            artifacts,
            kv_identity(reader, transaction.channel, row.number, artifacts).digest,
        )
    )
