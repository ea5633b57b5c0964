"""Coordinate methods in factor space: merge all A and all B apart, then multiply. Never a sum of deltas (R 0x05D)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import copysign, sqrt

import torch
from torch import Tensor

from compose.fields import TensorField
from compose.lowrank import (
    as_numbers,
    difference_norm,
    factor_error,
    grams_of,
    leading,
    product_norm,
    rank_above,
    rounding_floor,
    stack,
    triangle,
)
from compose.masks import MaskRole
from compose.merge import Merged, merge
from compose.module import Drop, Figures, LoadedFactor, ModuleInput, ModuleOutput
from compose.operators.refactor import Prepare, Prepared
from compose.shapes import FactorA, FactorB
from compose.tensors import round_once, store_dtype, work_dtype
from schemas.methods import TiesChoices

GAUGE = 2.0
"""The gauge sensitivity is measured by ``A -> 2 A, B -> B / 2`` on one member, which leaves its delta as it is."""


def combine(module: ModuleInput, prepare: Prepare, ties: TiesChoices | None = None) -> ModuleOutput:
    """Merge A with ``sign(c) sqrt|c|`` and B with ``sqrt|c|``; ranks are equal and stay.

    The product has cross terms ``B_i A_j`` and depends on the gauge of every member; both are measured.
    """
    store = store_dtype(module.choices.dtype)
    sides = _both(module, prepare, ties)
    b, a = sides.b.merged.values, sides.a.merged.values
    stored_b, stored_a = round_once(b, store), round_once(a, store)
    figures = _figures(module, sides, factor_error(b, a, stored_b, stored_a), _gauge(module, sides, prepare, ties))
    retained = [count for pair in zip(sides.a.merged.retained, sides.b.merged.retained, strict=True) for count in pair]
    masks = [mask for pair in zip(sides.a.prepared.masks, sides.b.prepared.masks, strict=True) for mask in pair]
    return ModuleOutput(stored_a, stored_b, figures, tuple(retained), tuple(masks))


@dataclass(frozen=True)
class _Side:
    """One factor role, prepared and merged."""

    prepared: Prepared
    merged: Merged


@dataclass(frozen=True)
class _Sides:
    a: _Side
    b: _Side


def split_coefficient(c: float) -> tuple[float, float]:
    """``(sign(c) sqrt|c|, sqrt|c|)`` for A and B."""
    root = sqrt(abs(c))
    return copysign(root, c), root


def _both(module: ModuleInput, prepare: Prepare, ties: TiesChoices | None) -> _Sides:
    weights = [split_coefficient(factor.coefficient) for factor in module.factors]
    a = _side(module, [factor.a for factor in module.factors], [w[0] for w in weights], "a", prepare, ties)
    b = _side(module, [factor.b for factor in module.factors], [w[1] for w in weights], "b", prepare, ties)
    return _Sides(a, b)


def _side(
    module: ModuleInput,
    tensors: Sequence[Tensor],
    weights: list[float],
    role: MaskRole,
    prepare: Prepare,
    ties: TiesChoices | None,
) -> _Side:
    work = work_dtype(module.choices.dtype)
    prepared = prepare(module, [TensorField(tensor.to(work)) for tensor in tensors], role)
    return _Side(prepared, merge(prepared.fields, weights, ties))


def _figures(module: ModuleInput, sides: _Sides, rounding: float, gauge: float | None) -> Figures:
    b, a = sides.b.merged.values.to(torch.float64), sides.a.merged.values.to(torch.float64)
    stacks = stack(module.factors)
    own = _processed(module, sides.b.prepared, sides.a.prepared)
    values = torch.linalg.svdvals(triangle(b) @ triangle(a.T).T)
    conflicts = (sides.a.merged.conflict, sides.b.merged.conflict)
    return Figures(
        norm=float(torch.linalg.norm(values)),
        singular_values=leading(values),
        numerical_rank=rank_above(values, rounding_floor(b, a)),
        discarded_energy=0.0,
        error=rounding,
        rounding=rounding,
        products=as_numbers(grams_of(stacks).products()),
        deviation=difference_norm(b, a, stacks.b * stacks.c, stacks.a),
        cross_term_norm=difference_norm(b, a, *own),
        gauge_sensitivity=gauge,
        conflict=_sum(conflicts),
        drops=_drops(module, sides),
    )


def _processed(module: ModuleInput, b: Prepared, a: Prepared) -> tuple[FactorB, FactorA]:
    """``sum_i c_i b_i a_i`` of the members as they enter the merge: what the product would be without cross terms."""
    columns = [
        each.tile(0).to(torch.float64) * factor.coefficient
        for each, factor in zip(b.fields, module.factors, strict=True)
    ]
    return torch.cat(columns, dim=1), torch.cat([each.tile(0).to(torch.float64) for each in a.fields])


def _gauge(module: ModuleInput, sides: _Sides, prepare: Prepare, ties: TiesChoices | None) -> float | None:
    """The largest relative change of the output when one member's gauge changes; null for a zero output."""
    b, a = sides.b.merged.values.to(torch.float64), sides.a.merged.values.to(torch.float64)
    norm = product_norm(b, a)
    if norm <= rounding_floor(b, a):
        return None
    changes = []
    for index in range(len(module.factors)):
        other = _both(_regauged(module, index), prepare, ties)
        changes.append(
            difference_norm(b, a, other.b.merged.values.to(torch.float64), other.a.merged.values.to(torch.float64))
        )
    return max(changes) / norm


def _regauged(module: ModuleInput, index: int) -> ModuleInput:
    work = work_dtype(module.choices.dtype)
    factors: list[LoadedFactor] = list(module.factors)
    chosen = factors[index]
    factors[index] = replace(chosen, a=chosen.a.to(work) * GAUGE, b=chosen.b.to(work) / GAUGE)
    return replace(module, factors=tuple(factors))


def _sum(conflicts: tuple[tuple[int, int] | None, tuple[int, int] | None]) -> tuple[int, int] | None:
    a, b = conflicts
    return None if a is None or b is None else (a[0] + b[0], a[1] + b[1])


def _drops(module: ModuleInput, sides: _Sides) -> tuple[Drop, ...]:
    """Of each member's ``b^ a^`` against its own ``b a``; the expectation is over independent masks of both factors."""
    dare = module.choices.dare
    if dare is None or not sides.a.prepared.dropped:
        return ()
    q = dare.density
    drops = []
    dropped = zip(module.factors, sides.b.prepared.dropped, sides.a.prepared.dropped, strict=True)
    for factor, b, a in dropped:
        whole_b, whole_a = factor.b.to(torch.float64), factor.a.to(torch.float64)
        norm = product_norm(whole_b, whole_a)
        change = difference_norm(b.tile(0).to(torch.float64), a.tile(0).to(torch.float64), whole_b, whole_a)
        drops.append(Drop(sqrt(1 / q**2 - 1), change / norm if norm > 0 and q < 1 else 0.0))
    return tuple(drops)
