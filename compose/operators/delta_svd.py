"""The best rank-r' approximation of the exact sum, without building it (R 0x05C)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Final

import torch
from torch import Tensor

from compose.lowrank import Stacks, as_numbers, grams_of, leading, product_norm, rank_above, stack, thin, trace_norm
from compose.module import Figures, ModuleInput, ModuleOutput
from compose.operators.decompose import pair, svd_choices
from compose.shapes import FactorA, FactorB, Values
from compose.tensors import round_once, store_dtype, work_dtype


def delta_svd(module: ModuleInput) -> ModuleOutput:
    """Thin QR of both stacks, SVD of the R x R core between them, multiply back.

    All of it is float64; the pair goes through the work dtype before it is rounded to the store dtype. Exact, before
    rounding, iff the output rank reaches rank(D).
    """
    work, store = work_dtype(module.choices.dtype), store_dtype(module.choices.dtype)
    stacks = stack(module.factors)
    grams = grams_of(stacks)
    left, right = thin(stacks.raw_b, grams.b), thin(stacks.raw_a.T, grams.a)
    u, s, vh = torch.linalg.svd((left.r * stacks.c) @ right.r.T, full_matrices=False)
    rank = module.rank
    b, a = pair(left.times(u[:, :rank]), s[:rank], right.times(vh[:rank].T).T, svd_choices(module.choices))
    stored_b, stored_a = round_once(b.to(work), store), round_once(a.to(work), store)
    losses = _Losses(b, a, b - stored_b, a - stored_a)
    figures = Figures(
        norm=float(torch.linalg.norm(s)),
        singular_values=leading(s),
        numerical_rank=rank_above(s, grams.noise_floor()),
        discarded_energy=float(s[rank:].square().sum()),
        error=losses.distance(stacks, s[rank:]),
        rounding=losses.norm,
        products=as_numbers(grams.products()),
    )
    return ModuleOutput(stored_a, stored_b, figures)


NEGLIGIBLE: Final = 1e-10
"""Share of a square that changes none of a figure's nine digits."""


@dataclass(frozen=True)
class _Losses:
    """The best pair ``b a`` and what storing takes from either factor: stored are ``b - loss_b`` and ``a - loss_a``."""

    b: FactorB
    a: FactorA
    loss_b: FactorB
    loss_a: FactorA

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """``[b, loss_b]^T`` and ``[loss_a; a']``, whose product is ``X = b a - b' a'``."""
        return torch.cat([self.b.T, self.loss_b.T]), torch.cat([self.loss_a, self.a - self.loss_a])

    @cached_property
    def grams(self) -> tuple[Tensor, Tensor]:
        """Their Gram matrices, from products with the losses alone: b's columns and a's rows are orthogonal.

        By Cholesky they are so to 1e-10 of their lengths (`INDEPENDENT`), which changes none of a norm's nine digits.
        """
        own_b, own_a = self.b.square().sum(dim=0).diag(), self.a.square().sum(dim=1).diag()
        across_b, lost_b = self.b.T @ self.loss_b, self.loss_b.T @ self.loss_b
        across_a, lost_a = self.loss_a @ self.a.T, self.loss_a @ self.loss_a.T
        stored_a = own_a - across_a - across_a.T + lost_a
        return _symmetric(own_b, across_b, lost_b), _symmetric(lost_a, across_a - lost_a, stored_a)

    @cached_property
    def norm(self) -> float:
        """``||X||_F``."""
        norm = trace_norm(*self.grams)
        return product_norm(self.rows[0].T, self.rows[1], self.grams[0]) if norm is None else norm

    def distance(self, stacks: Stacks, dropped: Values) -> float:
        """``||D - b' a'||_F``, where `dropped` are the singular values of ``D - b a``.

        ``D - b a`` is orthogonal to the columns of b and the rows of a, so of X only ``-loss_b loss_a`` meets it.
        """
        square = float(dropped.square().sum()) + self.norm**2
        most = 2.0 * float(dropped[:1].sum()) * float(torch.linalg.norm(self.loss_b) * torch.linalg.norm(self.loss_a))
        if most > NEGLIGIBLE * square:
            square = max(square - 2.0 * self._crossing(stacks), 0.0)
        return sqrt(square)

    def _crossing(self, stacks: Stacks) -> float:
        """``<D - b a, loss_b loss_a>``."""
        whole = (self.loss_b.T @ stacks.b * stacks.c) * (stacks.a @ self.loss_a.T).T
        best = (self.loss_b.T @ self.b) * (self.a @ self.loss_a.T).T
        return float(whole.sum() - best.sum())


def _symmetric(first: Tensor, across: Tensor, second: Tensor) -> Tensor:
    """``[first, across; across^T, second]``."""
    return torch.cat([torch.cat([first, across], dim=1), torch.cat([across.T, second], dim=1)])
