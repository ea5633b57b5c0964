"""Dense releases on this machine: base weights in a copied file, changed in place."""

from __future__ import annotations

from collections.abc import Mapping

from compose import release as arithmetic
from compose.request import TensorSource
from registry.service.composer import Extent, ReleasedWeight, ReleaseOrder, WeightOrder
from registry.worker.places import source
from schemas.adapter import FactorManifest
from schemas.digests import Digest


def release(order: ReleaseOrder, workers: int) -> tuple[ReleasedWeight, ...]:
    """Change every weight of the order."""
    patches = tuple(_patch(weight, order.extents) for weight in order.weights)
    return tuple(
        ReleasedWeight(done.name, done.tensor, done.change, done.rounding)
        for done in arithmetic.release(patches, workers)
    )


def _patch(weight: WeightOrder, extents: Mapping[Digest, Extent]) -> arithmetic.Patch:
    place = weight.place
    return arithmetic.Patch(
        name=weight.name,
        source=TensorSource(place.path, place.offset, place.length, weight.dtype, weight.shape),
        deltas=tuple(_delta(factor, extents) for factor in weight.factors),
        whole=None if weight.whole is None else source(weight.whole, extents),
    )


def _delta(factor: FactorManifest, extents: Mapping[Digest, Extent]) -> arithmetic.DeltaSource:
    extra = {role: source(ref, extents) for role, ref in factor.extra.items()}
    return arithmetic.DeltaSource(
        module=factor.module,
        a=source(factor.a, extents),
        b=source(factor.b, extents),
        scale=factor.scale.value,
        order=factor.order,
        e=extra.get("E"),
        magnitude=extra.get("magnitude"),
    )
