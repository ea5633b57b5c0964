"""Exact static sum by block concatenation (R 0x05B)."""

from __future__ import annotations

import torch

from compose.lowrank import Stacks, factor_error, grams_of, leading, product_norm, rank_above, stack, tuples
from compose.module import Figures, ModuleInput, ModuleOutput
from compose.shapes import StackA, StackB
from compose.tensors import round_once, store_dtype, work_dtype


def cat(module: ModuleInput) -> ModuleOutput:
    """``A = [c_1 A_1; ...; c_J A_J]`` and ``B = [B_1 ... B_J]``, so ``B A = sum_i c_i B_i A_i`` without cross terms.

    The coefficient goes into A in the work dtype and is rounded once; ranks, scales and module sets may differ.
    """
    work, store = work_dtype(module.choices.dtype), store_dtype(module.choices.dtype)
    stacks = stack(module.factors)
    weighted = stacks.a * stacks.c[:, None]
    a = weighted if work == torch.float64 else _weighted(module, work)
    stored_a = round_once(a, store)
    stored_b = stacks.raw_b if stacks.raw_b.dtype == store else round_once(stacks.b, store)
    return ModuleOutput(stored_a, stored_b, _figures(stacks, weighted, stored_a, stored_b))


def _weighted(module: ModuleInput, work: torch.dtype) -> StackA:
    return torch.cat([factor.a.to(work) * factor.coefficient for factor in module.factors])


def _figures(stacks: Stacks, weighted: StackA, stored_a: StackA, stored_b: StackB) -> Figures:
    grams = grams_of(stacks)
    values = torch.linalg.svdvals(grams.core())
    if stored_b is stacks.raw_b:
        error = product_norm(stacks.b, weighted - stored_a, grams.b)
    else:
        error = factor_error(stacks.b, weighted, stored_b, stored_a)
    return Figures(
        norm=float(torch.linalg.norm(values)),
        singular_values=leading(values),
        numerical_rank=rank_above(values, grams.noise_floor()),
        discarded_energy=0.0,
        error=error,
        rounding=error,
        products=tuples(grams.products()),
    )
