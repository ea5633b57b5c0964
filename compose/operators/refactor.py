"""Coordinate methods in delta space: merge the members' dense deltas, then factor the result at the asked rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt

import torch

from compose.fields import DeltaField, Field, energy, tiling
from compose.krylov import Truncated, truncated_svd
from compose.lowrank import Stacks, as_numbers, factor_error, grams_of, leading, stack
from compose.masks import MaskRole
from compose.merge import Merged, merge
from compose.module import Drop, Figures, ModuleInput, ModuleOutput
from compose.operators.decompose import pair, svd_choices
from compose.shapes import Dense, FactorA, FactorB, Products
from compose.tensors import round_once, store_dtype, work_dtype
from schemas.composition import MaskRef
from schemas.methods import TiesChoices


@dataclass(frozen=True)
class Prepared:
    """Fields ready to merge; for DARE also what was drawn and the dropped fields before any trim."""

    fields: Sequence[Field]
    masks: tuple[MaskRef, ...] = ()
    dropped: Sequence[Field] = field(default=())


Prepare = Callable[[ModuleInput, Sequence[Field], MaskRole], Prepared]


def refactor(module: ModuleInput, prepare: Prepare, ties: TiesChoices | None = None) -> ModuleOutput:
    """Merge in delta space and return the best pair of the output rank, by a certified truncated SVD."""
    work, store = work_dtype(module.choices.dtype), store_dtype(module.choices.dtype)
    prepared = prepare(module, [DeltaField(factor, work) for factor in module.factors], "delta")
    weights = [factor.weight for factor in module.factors]
    merged = merge(prepared.fields, weights, ties, energies=bool(prepared.dropped))
    choices = svd_choices(module.choices)
    svd = truncated_svd(merged.values, module.rank, exact=choices.mode == "exact")
    b, a = pair(svd.u, svd.s, svd.vh, choices)
    stored_b, stored_a = round_once(b, store), round_once(a, store)
    rounding = factor_error(b, a, stored_b, stored_a)
    figures = _figures(module, prepared, merged, svd, (stored_b, stored_a), rounding)
    return ModuleOutput(stored_a, stored_b, figures, tuple(merged.retained), prepared.masks)


def _figures(
    module: ModuleInput,
    prepared: Prepared,
    merged: Merged,
    svd: Truncated,
    stored: tuple[FactorB, FactorA],
    rounding: float,
) -> Figures:
    stacks = stack(module.factors)
    products = grams_of(stacks).products()
    whole = energy(merged.values)
    error, deviation = _distances(merged.values, stored, stacks)
    return Figures(
        norm=sqrt(whole),
        singular_values=leading(svd.s),
        numerical_rank=None,
        discarded_energy=max(whole - float(svd.s.square().sum()), 0.0),
        error=error,
        rounding=rounding,
        products=as_numbers(products),
        deviation=deviation,
        conflict=merged.conflict,
        drops=_drops(module, prepared, merged, products),
        certificate=svd.certificate,
    )


def _distances(dense: Dense, stored: tuple[FactorB, FactorA], stacks: Stacks) -> tuple[float, float]:
    """``||M - b a||_F`` and ``||M - D||_F``, by row tiles."""
    b, a = stored[0].to(torch.float64), stored[1].to(torch.float64)
    weighted = stacks.b * stacks.c
    error = deviation = 0.0
    grid = tiling(*dense.shape)
    for rows in map(grid.span, range(grid.count)):
        tile = dense[rows].to(torch.float64)
        error += energy(torch.addmm(tile, b[rows], a, alpha=-1.0))
        deviation += energy(torch.addmm(tile, weighted[rows], stacks.a, alpha=-1.0))
    return sqrt(error), sqrt(deviation)


def _drops(module: ModuleInput, prepared: Prepared, merged: Merged, products: Products) -> tuple[Drop, ...]:
    """With ``D^ = z D / q``: ``||D^ - D||^2 = ||D||^2 + (1 - 2 q) ||D^||^2``."""
    dare = module.choices.dare
    if dare is None or not prepared.dropped:
        return ()
    q = dare.density
    same = all(one is other for one, other in zip(prepared.dropped, prepared.fields, strict=True))
    energies = merged.energies if same else [each.energy() for each in prepared.dropped]
    drops = []
    for index, kept in enumerate(energies):
        whole = float(products[index, index])
        drawn = sqrt(max(whole + (1 - 2 * q) * kept, 0.0) / whole) if whole > 0 and q < 1 else 0.0
        drops.append(Drop(sqrt((1 - q) / q), drawn))
    return tuple(drops)
