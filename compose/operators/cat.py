"""Exact static sum by block concatenation (R 0x05B)."""

from __future__ import annotations

import torch

from compose.lowrank import core_of, factor_error, leading, noise_floor, rank_above, stack, tuples
from compose.module import Figures, ModuleInput, ModuleOutput
from compose.tensors import round_once, store_dtype, work_dtype


def cat(module: ModuleInput) -> ModuleOutput:
    """``A = [c_1 A_1; ...; c_J A_J]`` and ``B = [B_1 ... B_J]``, so ``B A = sum_i c_i B_i A_i`` without cross terms.

    The coefficient goes into A in the work dtype and is rounded once; ranks, scales and module sets may differ.
    """
    work, store = work_dtype(module.choices.dtype), store_dtype(module.choices.dtype)
    a = torch.cat([round_once(factor.a.to(work) * factor.coefficient, store) for factor in module.factors], dim=0)
    b = torch.cat([round_once(factor.b.to(torch.float64), store) for factor in module.factors], dim=1)
    return ModuleOutput(a, b, _figures(module, a, b))


def _figures(module: ModuleInput, a: torch.Tensor, b: torch.Tensor) -> Figures:
    stacks = stack(module.factors)
    core = core_of(stacks)
    values = torch.linalg.svdvals(core.matrix)
    products = core.products()
    error = factor_error(stacks.b, stacks.a * stacks.c[:, None], b, a)
    return Figures(
        norm=float(torch.linalg.norm(values)),
        singular_values=leading(values),
        numerical_rank=rank_above(values, noise_floor(module.factors)),
        discarded_energy=0.0,
        error=error,
        rounding=error,
        products=tuples(products),
    )
