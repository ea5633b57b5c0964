"""The pool: adapters of one base, experts they have, and how their factors are owned (R 0x04B, 0x08C)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from schemas.adapter import AdapterManifest, FactorManifest
from schemas.decision import Finding
from schemas.digests import Digest
from schemas.router import PoolEntry, RouterManifest
from validators.context import finding


def judge(router: RouterManifest, adapters: Mapping[Digest, AdapterManifest]) -> Iterator[Finding]:
    """Everything wrong with the candidates."""
    for position, entry in enumerate(router.pool):
        adapter = adapters[entry.adapter]
        if adapter.base != router.base:
            yield finding("POOL_BASE_DIFFERS", entry.adapter, ("pool", position), router.base, adapter.base)
        if not factors_of(entry, adapter):
            observed = ", ".join(map(str, sorted({str(factor.expert) for factor in adapter.factors})))
            path = ("pool", position, "expert")
            yield finding("POOL_EXPERT_MISSING", entry.adapter, path, f"expert {entry.expert}", f"experts {observed}")
    if router.topology == "shared_a":
        yield from _shared(router, adapters)
    if router.topology == "rank_one":
        yield from _rank_one(router, adapters)


def factors_of(entry: PoolEntry, adapter: AdapterManifest) -> tuple[FactorManifest, ...]:
    """The factors a candidate is made of: all of a plain adapter, or those of one expert."""
    return tuple(factor for factor in adapter.factors if factor.expert == entry.expert)


def _shared(router: RouterManifest, adapters: Mapping[Digest, AdapterManifest]) -> Iterator[Finding]:
    """One stored A a module: equal shapes are no shared object, nor is an equal rank."""
    owners: defaultdict[str, set[Digest]] = defaultdict(set)
    for entry in router.pool:
        for factor in factors_of(entry, adapters[entry.adapter]):
            owners[factor.module].add(factor.a.tensor)
    for module, tensors in sorted(owners.items()):
        if len(tensors) > 1:
            yield finding("SHARED_A_UNEQUAL", "router", ("topology", module), "one A", f"{len(tensors)} tensors")


def _rank_one(router: RouterManifest, adapters: Mapping[Digest, AdapterManifest]) -> Iterator[Finding]:
    for position, entry in enumerate(router.pool):
        ranks = {factor.rank for factor in factors_of(entry, adapters[entry.adapter])}
        if ranks - {1}:
            observed = ", ".join(map(str, sorted(ranks)))
            yield finding("FACTORS_NOT_RANK_ONE", entry.adapter, ("pool", position), "rank 1", observed)
