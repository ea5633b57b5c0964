"""The composer on this machine: manifests and extents in, an adapter manifest and its file out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf, prod
from pathlib import Path

import compose
from compose.compare import relative_difference
from compose.request import Role
from registry.service.admit import OUTPUT_FILE
from registry.service.composer import (
    Additivity,
    Composed,
    ComposeOrder,
    Converted,
    ConvertOrder,
    Extent,
    Progress,
    ReleasedWeight,
    ReleaseOrder,
    RouteOrder,
    Stored,
)
from registry.worker import converter, releaser, witness
from registry.worker.places import placed, source
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, Order, make_scale, sorted_factors
from schemas.base import TensorRef
from schemas.canonical import JsonObject
from schemas.composition import ModuleRecord
from schemas.digests import Digest


@dataclass(frozen=True)
class LocalComposer:
    """Composes in worker processes of this machine, within a memory limit in bytes."""

    workers: int
    memory_limit: int

    def compose(self, order: ComposeOrder, folder: Path, progress: Progress | None = None) -> Composed:
        """Compute into `folder`; on failure nothing is left there."""
        options = compose.Options(
            workers=self.workers,
            memory_limit=self.memory_limit,
            progress=None if progress is None else lambda step: progress(step.done, step.total),
        )
        taken = _take(order)
        result = compose.compose(taken.request, folder / OUTPUT_FILE, options=options)
        return Composed(
            output=_output(order.spec.base, taken.orders, result),
            families=taken.families,
            file=result.path,
            tensors=tuple(placed(item) for item in result.tensors),
            modules=result.modules,
            stochastic=result.stochastic,
            measurement=result.ledger,
            run_record=result.run_record,
        )

    def plan(self, order: ComposeOrder) -> JsonObject:
        """Cost before work."""
        options = compose.Options(workers=self.workers, memory_limit=self.memory_limit)
        return asdict(compose.plan(_take(order).request, options))

    def convert(self, order: ConvertOrder, folder: Path) -> Converted:
        """Make other factors of stored ones into `folder`; on failure nothing is left there."""
        return converter.convert(order, folder / OUTPUT_FILE)

    def release(self, order: ReleaseOrder) -> tuple[ReleasedWeight, ...]:
        """Add deltas to weights in place."""
        return releaser.release(order, self.workers)

    def difference(self, left: Stored, right: Stored) -> float:
        """Relative distance of two adapters' deltas, from triangular products of their factors."""
        ours, theirs = _factors(left), _factors(right)
        if ours.keys() != theirs.keys():
            return inf
        return max(relative_difference(ours[module], theirs[module]) for module in ours)

    def additivity(self, order: RouteOrder) -> Additivity:
        """Look for a counterexample among a few inputs of each module."""
        return witness.additivity(order)


def _factors(stored: Stored) -> dict[str, compose.FactorSource]:
    return {factor.module: factor for factor in map(partial(_factor, stored.extents), stored.adapter.factors)}


@dataclass(frozen=True)
class _Taken:
    """What is left of the members when all were read: how each module's pair makes a delta, and their families."""

    request: compose.ComposeRequest
    orders: Mapping[str, Order]
    families: frozenset[str]


def _take(order: ComposeOrder) -> _Taken:
    spec = order.spec
    assert spec.space is not None, "an admitted spec declares its space"
    members, orders, families = [], dict[str, Order](), set()
    forms: compose.Forms = {}
    for chosen in spec.members:
        stored = order.members[chosen.adapter]
        members.append(_member(stored, chosen.weight, forms))
        orders |= {factor.module: factor.order for factor in stored.adapter.factors}
        families.add(stored.adapter.family)
    request = compose.ComposeRequest(spec.method, spec.space, spec.choices, spec.base, tuple(members))
    return _Taken(request, orders, frozenset(families))


def _member(stored: Stored, weight: float, forms: compose.Forms) -> compose.Member:
    adapter, extents = stored.adapter, stored.extents
    return compose.Member(
        adapter=adapter.digest,
        weight=weight,
        factors=compose.PackedFactors(map(partial(_factor, extents), adapter.factors), forms),
        replacements=tuple(
            compose.ReplacementSource(item.name, source(item.value, extents)) for item in adapter.full_replacements
        ),
    )


def _factor(extents: Mapping[Digest, Extent], factor: FactorManifest) -> compose.FactorSource:
    return compose.FactorSource(
        module=factor.module,
        rank=factor.rank,
        scale=factor.scale.value,
        a=_flat(source(factor.a, extents)),
        b=_flat(source(factor.b, extents)),
        kernel=factor.a.shape[2:],
        experts=factor.a.shape[0] // factor.rank if factor.order == "B[o,r,e]A[e,r,i]" else None,
    )


def _flat(tensor: compose.TensorSource) -> compose.TensorSource:
    """A kernel as the matrix of the same bytes."""
    if len(tensor.shape) == 2:
        return tensor
    return replace(tensor, shape=(tensor.shape[0], prod(tensor.shape[1:])))


def _output(base: Digest, orders: Mapping[str, Order], result: compose.ComposeResult) -> AdapterManifest:
    """The composed adapter: every scale is inside the factors, so alpha = r and the rule gives 1."""
    written = {(item.module, item.role): item.tensor for item in result.tensors}
    factors = [_composed_factor(base, record, written, orders[record.module]) for record in result.modules]
    heads = sorted((module, ref) for (module, role), ref in written.items() if role == "full")
    return AdapterManifest(
        base=base,
        factors=sorted_factors(factors),
        family="lora",
        full_replacements=tuple(FullReplacement(name=name, value=ref) for name, ref in heads),
    )


def _composed_factor(
    base: Digest, record: ModuleRecord, written: Mapping[tuple[str, Role], TensorRef], turned: Order
) -> FactorManifest:
    return FactorManifest(
        base=base,
        module=record.module,
        a=written[record.module, "lora_A"],
        b=written[record.module, "lora_B"],
        order=turned,
        rank=record.output_rank,
        scale=make_scale(float(record.output_rank), "alpha_over_r", record.output_rank),
        source="lora",
    )
