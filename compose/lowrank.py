"""Exact figures of low-rank deltas from QR factors and R x R cores; the dense delta is never built.

With thin QR of the stacks, ``B = Q_B R_B`` and ``A^T = Q_A R_A``, the delta ``B diag(c) A`` equals ``Q_B (R_B diag(c)
R_A^T) Q_A^T``: its norm, singular values and inner products are those of the small core in the middle. Everything is
float64. Columns that are far from dependent give R by Cholesky of their Gram matrix, all others by Householder QR. A
norm comes from two Gram matrices, ``||B A||_F^2 = tr((B^T B)(A A^T))``, where the trace keeps its nine digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compose.module import LoadedFactor
from compose.shapes import (
    BasisB,
    Columns,
    FactorA,
    FactorB,
    Gram,
    GramR,
    GramRank,
    Matrix,
    OtherA,
    OtherB,
    Owners,
    PerRow,
    Products,
    StackA,
    StackB,
    Triangle,
    Values,
)


@dataclass(frozen=True)
class Stacks:
    """All members of one module side by side: ``D = b @ diag(c) @ a``; `c` and `scales` repeat over a member's rows.

    `raw_b` and `raw_a` are in the narrowest dtype that has all members'. `owner` is 1 where a row of the stack is a
    member's.
    """

    raw_b: StackB
    raw_a: StackA
    c: PerRow
    scales: PerRow
    owner: Owners

    @cached_property
    def b(self) -> StackB:
        """The same numbers in float64."""
        return self.raw_b.to(torch.float64)

    @cached_property
    def a(self) -> StackA:
        """The same numbers in float64."""
        return self.raw_a.to(torch.float64)


def stack(factors: tuple[LoadedFactor, ...]) -> Stacks:
    """The members' factors without their coefficients."""
    device = factors[0].a.device
    repeats = torch.tensor([factor.rank for factor in factors], device=device)

    def per_row(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device).repeat_interleave(repeats)

    return Stacks(
        raw_b=_side_by_side([factor.b for factor in factors]),
        raw_a=torch.cat([factor.a for factor in factors], dim=0),
        c=per_row([factor.coefficient for factor in factors]),
        scales=per_row([factor.scale for factor in factors]),
        owner=torch.eye(len(factors), dtype=torch.float64, device=device).repeat_interleave(repeats, dim=1),
    )


def _side_by_side(columns: list[Tensor]) -> StackB:
    if all(column.shape[1] == 1 for column in columns):
        # Turned as a whole: put in one by one, single columns cost twice as much.
        return torch.cat([column.T for column in columns]).T.contiguous()
    return torch.cat(columns, dim=1)


SHORTEST: Final = 1e-140
"""Columns whose squares would underflow are left to QR."""
INDEPENDENT: Final = 1e-4
"""Smallest eigenvalue of the Gram matrix of unit columns at which Cholesky is as good as QR: what it loses, ten
thousand roundings, is far below the nine digits of a figure."""
KEPT: Final = 1e-3
"""Share of its addends' size that a trace of Gram matrices must keep. The addends carry about ``10 sqrt(d)`` roundings
(Higham and Mary 2019), 3e-13 for any d up to a million; a thousandth of the size then has nine digits as a norm."""

SMALLEST: Final = 1e-280
"""A square below it may have lost digits to underflow."""


TILE: Final = 1 << 17
"""Elements in work at once: a core's own cache holds their float64 forms, and memory does not grow with the module."""


def tiles(rows: Tensor) -> Iterator[slice]:
    """Column ranges of short, wide rows."""
    width = max(1, TILE // len(rows))
    return (slice(start, start + width) for start in range(0, rows.shape[1], width))


def gram_of(rows: Tensor) -> GramR:
    """``X X^T`` of short, wide rows."""
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for columns in tiles(rows):
        tile = rows[:, columns].to(torch.float64)
        gram.addmm_(tile, tile.T)
    return gram


@dataclass(frozen=True)
class Thin:
    """Thin QR ``X = Q R``, m = min(d, k); where `q` is null, Q is ``X R^-1`` and never formed. X is as stored."""

    x: Columns
    r: Triangle
    q: BasisB | None

    def times(self, small: Matrix) -> Tensor:
        """``Q small``; as rows, since short, wide products are the fast ones."""
        if self.q is not None:
            return (small.T @ self.q.T).T
        solved: Tensor = torch.linalg.solve_triangular(self.r, small, upper=True).T
        out = solved.new_empty(len(solved), len(self.x))
        for rows in tiles(self.x.T):
            torch.mm(solved, self.x[rows].to(torch.float64).T, out=out[:, rows])
        return out.T


def thin(columns: Columns, gram: Gram | None = None) -> Thin:
    """Both factors of the thin QR; `gram` is ``X^T X`` where it is known."""
    r = _cholesky(columns, gram)
    if r is not None:
        return Thin(columns, r, None)
    q, r = torch.linalg.qr(columns.to(torch.float64))
    return Thin(columns, r, q)


def triangle(columns: Columns, gram: Gram | None = None) -> Triangle:
    """R of the thin QR, m = min(d, k): ``R^T R = X^T X``."""
    r = _cholesky(columns, gram)
    return torch.linalg.qr(columns.to(torch.float64), mode="r").R if r is None else r


def _cholesky(columns: Columns, gram: Gram | None) -> Triangle | None:
    """R by the Gram matrix, several times faster than QR; null for columns too dependent to square their condition."""
    gram = gram_of(columns.T) if gram is None else gram
    lengths = gram.diagonal().sqrt()
    if columns.shape[0] < columns.shape[1] or not bool((lengths > SHORTEST).all()):
        return None
    unit, failed = torch.linalg.cholesky_ex(gram / lengths / lengths[:, None], upper=True)
    if failed or _smallest(unit) < INDEPENDENT:
        return None
    r: Tensor = unit * lengths
    return r


def _smallest(triangle: Triangle) -> float:
    """At most the smallest eigenvalue of ``R^T R``, and at least an n-th of it: ``1 / ||R^-1||_F^2``."""
    identity = torch.eye(len(triangle), dtype=triangle.dtype, device=triangle.device)
    inverse = torch.linalg.solve_triangular(triangle, identity, upper=True)
    return 1.0 / float(inverse.square().sum())


def trace_norm(left: Matrix, right: Matrix) -> float | None:
    """``||B A||_F`` from ``B^T B`` and ``A A^T``; null where the trace cancels or leaves the range of floats."""
    square = float((left * right).sum())
    size = float((left.diagonal() * right.diagonal()).sqrt().sum()) ** 2
    if size == 0.0:
        return 0.0
    return sqrt(square) if SMALLEST < KEPT * size <= square < inf else None


def product_norm(b: FactorB, a: FactorA, gram: GramRank | None = None) -> float:
    """``||b a||_F``; `gram` is ``b^T b`` where it is known."""
    gram = b.T @ b if gram is None else gram
    norm = trace_norm(gram, a @ a.T)
    return float(torch.linalg.norm(triangle(b, gram) @ a)) if norm is None else norm


def factor_error(b: FactorB, a: FactorA, stored_b: FactorB, stored_a: FactorA) -> float:
    """``||b a - stored_b stored_a||_F``, free of cancellation: ``b a - b' a' = b (a - a') + (b - b') a'``."""
    loss_a, loss_b = a - stored_a, b - stored_b
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
class Grams:
    """``B^T B`` and ``A A^T`` of the stacks: what every figure of a sum needs of their length."""

    b: GramR
    a: GramR
    stacks: Stacks

    def core(self) -> Matrix:
        """``R_B diag(c) R_A^T``, which has the singular values of the sum."""
        return (triangle(self.stacks.raw_b, self.b) * self.stacks.c) @ triangle(self.stacks.raw_a.T, self.a).T

    def products(self) -> Products:
        """``<D_i, D_j>_F = tr(B_i^T B_j A_j A_i^T) s_i s_j``, block sums of one small elementwise product."""
        each = self.stacks.owner * self.stacks.scales
        return each @ (self.b * self.a) @ each.T

    def noise_floor(self) -> float:
        """The rounding floor of the largest addend ``c_i B_i A_i``."""
        owner = self.stacks.owner
        squares = (owner @ self.b.diagonal()) * (owner @ (self.a.diagonal() * self.stacks.c.square()))
        return sqrt(float(squares.max())) * _floor(self.stacks.raw_b, self.stacks.raw_a)


def grams_of(stacks: Stacks) -> Grams:
    """Both Gram matrices."""
    return Grams(gram_of(stacks.raw_b.T), gram_of(stacks.raw_a), stacks)


def rounding_floor(b: FactorB, a: FactorA) -> float:
    """The singular value of ``b a`` below which a direction is rounding.

    Rounding has the size of the factors, not of their product: a product that cancels inside leaves it behind.
    """
    size = float(torch.linalg.norm(b.to(torch.float64))) * float(torch.linalg.norm(a.to(torch.float64)))
    return size * _floor(b, a)


def _floor(b: FactorB, a: FactorA) -> float:
    return max(b.shape[0], a.shape[1]) * torch.finfo(torch.float64).eps


LEADING: Final = 8
"""Singular values a ledger shows."""


def leading(values: Values) -> tuple[float, ...]:
    """The largest singular values."""
    return tuple(values[:LEADING].tolist())


def rank_above(values: Values, floor: float) -> int:
    """How many singular values are more than rounding."""
    return int((values > floor).sum())


def as_numbers(products: Products) -> NDArray[np.float64]:
    """A small matrix for the ledger, on whatever device it was made."""
    return products.cpu().numpy()
