"""The best rank-r' approximation of the exact sum, without building it (R 0x05C)."""

from __future__ import annotations

from math import sqrt

import torch

from compose.lowrank import (
    Core,
    Thin,
    factor_error,
    leading,
    noise_floor,
    product_norm,
    rank_above,
    stack,
    thin,
    tuples,
)
from compose.module import Figures, ModuleInput, ModuleOutput
from compose.operators.decompose import pair, svd_choices
from compose.shapes import FactorA, FactorB, Matrix
from compose.tensors import round_once, store_dtype, work_dtype


def delta_svd(module: ModuleInput) -> ModuleOutput:
    """Thin QR of both stacks, SVD of the R x R core between them, multiply back.

    QR and products are float64, the SVD of the core is in the work dtype. Exact, before rounding, iff the output rank
    reaches rank(D).
    """
    work, store = work_dtype(module.choices.dtype), store_dtype(module.choices.dtype)
    stacks = stack(module.factors)
    left, right = thin(stacks.b), thin(stacks.a.T)
    core = Core(left.r, right.r, stacks)
    u, s, vh = torch.linalg.svd(core.matrix.to(work), full_matrices=False)
    rank = module.rank
    whole_u, whole_v = left.times(u[:, :rank].double()).to(work), right.times(vh[:rank].T.double()).to(work)
    b, a = pair(whole_u, s[:rank], whole_v.T.contiguous(), svd_choices(module.choices))
    stored_b, stored_a = round_once(b, store), round_once(a, store)
    values = torch.linalg.svdvals(core.matrix) if work != torch.float64 else s
    products = core.products()
    figures = Figures(
        norm=float(torch.linalg.norm(values)),
        singular_values=leading(values),
        numerical_rank=rank_above(values, noise_floor(module.factors)),
        discarded_energy=float(values[rank:].square().sum()),
        error=_error(core.matrix, left, right, stored_b, stored_a),
        rounding=factor_error(b, a, stored_b, stored_a),
        products=tuples(products),
    )
    return ModuleOutput(stored_a, stored_b, figures)


def _error(core: Matrix, left: Thin, right: Thin, b: FactorB, a: FactorA) -> float:
    """``||Q_B core Q_A^T - b a||_F`` from three orthogonal parts: inside both spans, and outside either."""
    b, a = b.to(core.dtype), a.to(core.dtype)
    inside_b, inside_a = left.transposed_times(b), right.transposed_times(a.T).T
    outside_b, outside_a = b - left.times(inside_b), a - right.times(inside_a.T).T
    inside = float((core - inside_b @ inside_a).square().sum()) + float((inside_b @ outside_a).square().sum())
    return sqrt(inside + product_norm(outside_b, a) ** 2)
