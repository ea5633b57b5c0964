"""Requests: whether a route is its router's, and a transaction one request of one generation (R 0x07H, 0x08G)."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from typing import Final

from schemas.decision import Finding
from schemas.digests import Digest
from schemas.errors import Path
from schemas.release import CandidateManifest, ResolvedRouteManifest, RouteLayer, TransactionManifest
from schemas.router import RouterManifest
from validators.context import finding

GATE_TOLERANCE: Final = 1e-6
"""Within which gates of a row sum to one: they are stored in the gate's own dtype."""


def judge_route(route: ResolvedRouteManifest, router: RouterManifest) -> Iterator[Finding]:
    """Everything in a resolved route that its router could not have chosen."""
    pool = {(entry.adapter, entry.expert) for entry in router.pool}
    for position, layer in enumerate(route.layers):
        path: Path = ("layers", position)
        for chosen in layer.chosen:
            if (chosen.adapter, chosen.expert) not in pool:
                observed = f"{chosen.adapter}, expert {chosen.expert}"
                yield _found("ROUTE_OUTSIDE_POOL", path, "a candidate of the router", observed)
        yield from _degree(layer, router, path)
    if route.pooling != router.pooling:
        yield _found("ROUTE_OF_ANOTHER_ROUTER", ("pooling",), router.pooling, route.pooling)


def judge_transaction(
    transaction: TransactionManifest,
    candidate: CandidateManifest,
    route: ResolvedRouteManifest,
    artifacts: tuple[Digest, ...],
    kv_identity: Digest,
) -> Iterator[Finding]:
    """Whether candidate, route, execution and cache belong to one generation of one channel.

    `artifacts` and `kv_identity` are those of the generation the transaction names.
    """
    if route.router != candidate.router:
        yield _found("ROUTE_OF_ANOTHER_ROUTER", ("route",), candidate.router, route.router)
    if transaction.kv_route != transaction.route:
        yield _found("KV_AFTER_ROUTE_CHANGE", ("kv_route",), transaction.route, transaction.kv_route)
    if transaction.kv_identity != kv_identity:
        yield _found("KV_AFTER_ROUTE_CHANGE", ("kv_identity",), kv_identity, transaction.kv_identity)
    if candidate.digest not in artifacts:
        path, generation = ("generation",), f"{transaction.channel}@g{transaction.generation}"
        yield _found(
            "EXECUTION_OF_ANOTHER_GENERATION", path, f"a generation that serves {candidate.digest}", generation
        )
    execution = transaction.execution
    slots, pointers = len(execution.slot_generations), len(execution.pointer_generations)
    if not slots == pointers == len(candidate.adapters):
        expected, observed = f"{len(candidate.adapters)} slots and pointers, one an adapter", f"{slots} and {pointers}"
        yield _found("EXECUTION_OF_ANOTHER_GENERATION", ("execution", "slot_generations"), expected, observed)


def _degree(layer: RouteLayer, router: RouterManifest, path: Path) -> Iterator[Finding]:
    """Fewer than k only where a capacity may have refused some or a no-op took the place."""
    chosen, rule = len(layer.chosen), router.selection.rule
    most = router.selection.k if rule == "top_k" else router.candidates
    short = router.capacity != "none" or bool(router.no_op_ids)
    if most is not None and (chosen > most or (rule != "threshold" and chosen < most and not short)):
        yield _found("ROUTE_DEGREE_DIFFERS", (*path, "chosen"), str(most), str(chosen))
    distinct = len({(item.adapter, item.expert) for item in layer.chosen})
    if distinct != chosen:
        yield _found("ROUTE_DEGREE_DIFFERS", (*path, "chosen"), "each candidate once", f"{distinct} of {chosen}")
    total = sum(item.gate for item in layer.chosen)
    normalized = router.gates.normalization == "selected_row" or (
        router.gates.normalization == "pool_row" and rule == "all"
    )
    if normalized and not short and not isclose(total, 1.0, abs_tol=GATE_TOLERANCE):
        yield _found("ROUTE_NOT_NORMALIZED", (*path, "chosen"), "gates that sum to 1", f"{total:.6g}")


def _found(code: str, path: Path, expected: str, observed: str) -> Finding:
    return finding(code, "request", path, expected, observed)
