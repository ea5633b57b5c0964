"""Exact figures of low-rank deltas from QR factors and R x R cores; the dense delta is never built.

With thin QR of the stacks, ``B = Q_B R_B`` and ``A^T = Q_A R_A``, the delta ``B diag(c) A`` equals ``Q_B (R_B diag(c)
R_A^T) Q_A^T``: its norm, singular values and inner products are those of the small core in the middle. Everything is
float64. Columns that are far from dependent give R by Cholesky of their Gram matrix, all others by Householder QR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from compose.module import LoadedFactor
from compose.shapes import (
    BasisB,
    Columns,
    FactorA,
    FactorB,
    Matrix,
    OtherA,
    OtherB,
    PerRow,
    Products,
    StackA,
    StackB,
    Triangle,
    TriangleA,
    TriangleB,
    Values,
)


@dataclass(frozen=True)
class Stacks:
    """All members of one module side by side: ``D = b @ diag(c) @ a``; `c` and `scales` repeat over a member's rows."""

    b: StackB
    a: StackA
    c: PerRow
    scales: PerRow
    ranks: tuple[int, ...]


def stack(factors: tuple[LoadedFactor, ...]) -> Stacks:
    """The members' factors in float64, without their coefficients."""
    device = factors[0].a.device
    ranks = tuple(factor.rank for factor in factors)
    repeats = torch.tensor(ranks, device=device)

    def per_row(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device).repeat_interleave(repeats)

    return Stacks(
        b=torch.cat([factor.b.to(torch.float64) for factor in factors], dim=1),
        a=torch.cat([factor.a.to(torch.float64) for factor in factors], dim=0),
        c=per_row([factor.coefficient for factor in factors]),
        scales=per_row([factor.scale for factor in factors]),
        ranks=ranks,
    )


SHORTEST: Final = 1e-140
"""Columns whose squares would underflow are left to QR."""
INDEPENDENT: Final = 1e-3
"""Smallest eigenvalue of the Gram matrix of unit columns at which Cholesky is as good as QR: what it loses, a thousand
roundings, is far below the nine digits of a figure."""


@dataclass(frozen=True)
class Thin:
    """Thin QR ``X = Q R``, m = min(d, k); where `q` is null, Q is ``X R^-1`` and never formed."""

    x: Columns
    r: Triangle
    q: BasisB | None

    def times(self, small: Matrix) -> Tensor:
        """``Q small``; as rows, since short, wide products are the fast ones."""
        if self.q is not None:
            return (small.T @ self.q.T).T
        solved: Tensor = torch.linalg.solve_triangular(self.r, small, upper=True)
        return (solved.T @ self.x.T).T

    def transposed_times(self, tall: Matrix) -> Tensor:
        """``Q^T tall``."""
        if self.q is not None:
            return (tall.T @ self.q).T
        solved: Tensor = torch.linalg.solve_triangular(self.r.T, (tall.T @ self.x).T, upper=False)
        return solved


def thin(columns: Columns) -> Thin:
    """Both factors of the thin QR."""
    r = _cholesky(columns)
    if r is not None:
        return Thin(columns, r, None)
    q, r = torch.linalg.qr(columns)
    return Thin(columns, r, q)


def triangle(columns: Columns) -> Triangle:
    """R of the thin QR, m = min(d, k): ``R^T R = X^T X``."""
    r = _cholesky(columns)
    return torch.linalg.qr(columns, mode="r").R if r is None else r


def _cholesky(columns: Columns) -> Triangle | None:
    """R by the Gram matrix, several times faster than QR; null for columns too dependent to square their condition."""
    gram = columns.T @ columns
    lengths = gram.diagonal().sqrt()
    if columns.shape[0] < columns.shape[1] or not bool((lengths > SHORTEST).all()):
        return None
    unit = gram / lengths / lengths[:, None]
    if float(torch.linalg.eigvalsh(unit)[0]) < INDEPENDENT:
        return None
    r: Tensor = torch.linalg.cholesky(unit, upper=True) * lengths
    return r


def product_norm(b: FactorB, a: FactorA) -> float:
    """``||b a||_F``."""
    return float(torch.linalg.norm(triangle(b) @ a))


def factor_error(
    b: FactorB,
    a: FactorA,
    stored_b: FactorB,
    stored_a: FactorA,
) -> float:
    """``||b a - stored_b stored_a||_F``, free of cancellation: ``b a - b' a' = b (a - a') + (b - b') a'``."""
    loss_a, loss_b = a - stored_a.to(a.dtype), b - stored_b.to(b.dtype)
    if not bool(loss_b.any()):
        return product_norm(b, loss_a) if bool(loss_a.any()) else 0.0
    return product_norm(torch.cat([b, loss_b], dim=1), torch.cat([loss_a, stored_a.to(a.dtype)], dim=0))


def difference_norm(
    b: FactorB,
    a: FactorA,
    other_b: OtherB,
    other_a: OtherA,
) -> float:
    """``||b a - b' a'||_F = ||[b, -b'] [a; a']||_F``."""
    return product_norm(torch.cat([b, -other_b], dim=1), torch.cat([a, other_a], dim=0))


@dataclass(frozen=True)
class Core:
    """Triangles of the stacks and the core between them."""

    r_b: TriangleB
    r_a: TriangleA
    stacks: Stacks

    @property
    def matrix(self) -> Matrix:
        """``R_B diag(c) R_A^T``."""
        return (self.r_b * self.stacks.c) @ self.r_a.T

    def products(self) -> Products:
        """``<D_i, D_j>_F = tr(B_i^T B_j A_j A_i^T) s_i s_j``, block sums of one small elementwise product."""
        scaled = self.r_a * self.stacks.scales
        entries = (self.r_b.T @ self.r_b) * (scaled.T @ scaled)
        blocks = torch.split(entries, list(self.stacks.ranks))
        rows = torch.stack([block.sum(dim=0) for block in blocks])
        return torch.stack([part.sum(dim=1) for part in torch.split(rows, list(self.stacks.ranks), dim=1)], dim=1)


def core_of(stacks: Stacks) -> Core:
    """The triangular picture of a module."""
    return Core(triangle(stacks.b), triangle(stacks.a.T), stacks)


def rounding_floor(b: FactorB, a: FactorA) -> float:
    """The singular value of ``b a`` below which a direction is rounding.

    Rounding has the size of the factors, not of their product: a product that cancels inside leaves it behind.
    """
    size = float(torch.linalg.norm(b.to(torch.float64))) * float(torch.linalg.norm(a.to(torch.float64)))
    return size * max(b.shape[0], a.shape[1]) * torch.finfo(torch.float64).eps


def noise_floor(factors: tuple[LoadedFactor, ...]) -> float:
    """The rounding floor of the largest addend ``c_i B_i A_i``."""
    return max(abs(factor.coefficient) * rounding_floor(factor.b, factor.a) for factor in factors)


LEADING: Final = 8
"""Singular values a ledger shows."""


def leading(values: Values) -> tuple[float, ...]:
    """The largest singular values."""
    return tuple(values[:LEADING].tolist())


def rank_above(values: Values, floor: float) -> int:
    """How many singular values are more than rounding."""
    return int((values > floor).sum())


def tuples(products: Products) -> tuple[tuple[float, ...], ...]:
    """A small matrix as plain numbers."""
    return tuple(tuple(row) for row in products.tolist())
