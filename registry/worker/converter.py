"""Conversions on this machine: stored factors in, other factors in one file out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compose import convert as arithmetic
from registry.service.composer import Converted, ConvertOrder, Extent, FactorOrder, PlacedTensor, Term
from registry.worker.places import placed, source
from schemas.digests import Digest


def convert(order: ConvertOrder, out: Path) -> Converted:
    """Write the converted factors into `out`."""
    request = arithmetic.ConvertRequest(
        factors=tuple(_factor(factor, order.extents) for factor in order.factors),
        carried={name: source(ref, order.extents) for name, ref in order.carried.items()},
    )
    result = arithmetic.convert(request, out)
    tensors: dict[tuple[str, str], PlacedTensor] = {(item.module, item.role): placed(item) for item in result.tensors}
    return Converted(file=result.path, tensors=tensors, measurement=result.ledger)


def _factor(factor: FactorOrder, extents: Mapping[Digest, Extent]) -> arithmetic.ConvertFactor:
    return arithmetic.ConvertFactor(
        key=factor.key,
        terms=tuple(_term(term, extents) for term in factor.terms),
        sides=factor.sides,
        dtype=factor.dtype,
        scale=factor.scale,
        into=factor.into,
        rank=factor.rank,
        balance=factor.balance,
    )


def _term(term: Term, extents: Mapping[Digest, Extent]) -> arithmetic.TermSource:
    e = None if term.e is None else source(term.e, extents)
    return arithmetic.TermSource(source(term.a, extents), source(term.b, extents), e, term.sign)
