"""Truncated SVD of a dense matrix by block Krylov, with a bound on how far from the best it can be.

Vectors are rows: a product with a short, wide block is several times faster than one with a tall, narrow one. The
basis Q of left vectors is grown block by block, all blocks kept and orthogonalised twice; ``W = Q M`` gives the Ritz
triplets (Musco and Musco 2015).

Bound. Let K = M M^T, U the m leading Ritz vectors with Ritz values theta, R = K U - U diag(theta) and G the
compression of K to the complement of U. For any V with r orthonormal columns and Y its part outside U, ``tr(V^T K V)
<= sum_{i<=r} theta_i - theta_r ||Y||^2 + 2 ||R||_F ||Y||_F + ||G|| ||Y||^2``, so the energy the best rank r captures
beyond ours is at most ``||R||_F^2 / (theta_r - ||G||)``. ``||G||`` is bounded by a second Krylov space from fresh
Gaussian vectors inside the complement: see `_norm_bound`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import acosh, cosh, exp, inf, lgamma, log, sqrt
from typing import Final

import torch
from torch import Tensor

from compose.module import Certificate
from compose.shapes import Dense, FactorA, FactorB, Matrix, RitzLeft, RitzRight, RitzValues, Values

FAILURE_PROBABILITY: Final = 1e-9
TOLERANCE: Final = 1e-5
"""Excess of the discarded energy over the optimum, relative to what is discarded."""

SMALL: Final = 256
"""Up to this side LAPACK's whole SVD is faster."""

_OVERSAMPLING: Final = 16
_FIRST_BLOCKS: Final = 3
_PROBES: Final = 16
_PROBE_BLOCKS: Final = 10
_SEED: Final = 20230
_INVARIANT: Final = 1e-13
_ROUNDING: Final = 1e-24


@dataclass(frozen=True)
class Truncated:
    """``u [d_out, r]``, ``s [r]`` descending, ``vh [r, d_in]``, and the bound."""

    u: FactorB
    s: Values
    vh: FactorA
    certificate: Certificate


def truncated_svd(matrix: Dense, rank: int, *, exact: bool = False) -> Truncated:
    """The leading `rank` singular triplets, certified to discard at most 1 + 1e-5 times the energy the best rank would.

    Args:
        matrix: any floating dtype; sums are float64.
        rank: 1 to the smaller side.
        exact: use LAPACK's SVD at any size.
    """
    width = rank + _OVERSAMPLING
    if exact or min(matrix.shape) <= max(SMALL, _FIRST_BLOCKS * width):
        return _whole(matrix, rank)
    space = _Space(matrix, width)
    space.grow(_FIRST_BLOCKS)
    attempt = 0
    while space.dimension + width <= min(matrix.shape):
        ritz = space.ritz()
        if space.invariant:
            return _settle(space, ritz, rank)
        kept, likely = _choose(ritz, rank)
        goal = TOLERANCE * max(space.energy - float(ritz.theta[:rank].sum()), 0.0)
        if likely <= goal:
            attempt += 1
            excess = _certify(space, ritz, rank, kept, goal, attempt)
            if excess <= goal:
                return _cut(ritz, rank, Certificate(excess, FAILURE_PROBABILITY, space.dimension))
        space.grow(1)
    return _whole(matrix, rank)


def _settle(space: _Space, ritz: _Ritz, rank: int) -> Truncated:
    """An invariant space holds all of M, unless M repeats a singular value more often than a block has vectors."""
    excess = space.remainder()
    if excess > _ROUNDING * space.energy:
        return _whole(space.matrix, rank)
    return _cut(ritz, rank, Certificate(excess, 0.0, space.dimension))


def _whole(matrix: Dense, rank: int) -> Truncated:
    u, s, vh = torch.linalg.svd(matrix.to(torch.float64), full_matrices=False)
    return Truncated(u[:, :rank], s[:rank], vh[:rank], Certificate(0.0, 0.0, min(matrix.shape)))


@dataclass(frozen=True)
class _Ritz:
    """Triplets of ``Q^T Q M``, values squared in `theta`, squared residuals ``||K u - theta u||^2`` in `residuals`."""

    u: RitzLeft
    s: RitzValues
    vh: RitzRight
    theta: RitzValues
    residuals: RitzValues


class _Space:
    """The growing left Krylov basis Q of M and its image W = Q M, all in rows."""

    def __init__(self, matrix: Dense, width: int) -> None:
        self.matrix, self.width = matrix, width
        self.energy = float(torch.linalg.vector_norm(matrix, dtype=torch.float64)) ** 2
        self._next = times_transposed(matrix, _gaussian(width, matrix.shape[1], matrix.device, _SEED))
        self._q: list[Tensor] = []
        self._w: list[Tensor] = []

    @property
    def dimension(self) -> int:
        """Rows of the basis."""
        return self.width * len(self._q)

    def grow(self, blocks: int) -> None:
        """Add blocks; afterwards `_next` is the part of ``K q`` of the last block that lies outside the basis."""
        for _ in range(blocks):
            block = orthonormal(self._next, self._q)
            image = times(block, self.matrix)
            self._q.append(block)
            self._w.append(image)
            self._next = outside(times_transposed(self.matrix, image), self._q)

    @property
    def invariant(self) -> bool:
        """Whether another block would hold nothing but rounding."""
        return float(torch.linalg.norm(self._next)) <= _INVARIANT * max(self.energy, torch.finfo(torch.float64).tiny)

    def ritz(self) -> _Ritz:
        """Ritz triplets with their residuals, which only the last block has."""
        small_u, s, vh = _svd_of_rows(torch.cat(self._w))
        u = small_u.T @ torch.cat(self._q)
        residuals = (small_u[-self.width :].T @ self._next).square().sum(dim=1)
        return _Ritz(u, s, vh, s.square(), residuals)

    def remainder(self) -> float:
        """``||M - Q^T Q M||_F^2``, by rows: the best rank captures at most this much more (Ky Fan)."""
        q, w = torch.cat(self._q), torch.cat(self._w)
        total = 0.0
        for rows in row_tiles(self.matrix):
            total += float((self.matrix[rows].to(torch.float64) - q[:, rows].T @ w).square().sum())
        return total


def _svd_of_rows(w: Matrix) -> tuple[Tensor, Tensor, Tensor]:
    """SVD of a short, wide matrix through the QR of its transpose."""
    q, r = torch.linalg.qr(w.T)
    u, s, vh = torch.linalg.svd(r.T)
    return u, s, vh @ q.T


def _cut(ritz: _Ritz, rank: int, certificate: Certificate) -> Truncated:
    return Truncated(ritz.u[:rank].T.contiguous(), ritz.s[:rank], ritz.vh[:rank].contiguous(), certificate)


def _choose(ritz: _Ritz, rank: int) -> tuple[int, float]:
    """How many Ritz vectors m to set apart, and the excess to expect: the next Ritz value stands in for ``||G||``."""
    theta, total = ritz.theta, ritz.residuals.cumsum(dim=0)
    gaps = theta[rank - 1] - _PESSIMISM * theta[rank:]
    likely = torch.where(gaps > 0, total[rank - 1 : -1] / gaps, inf)
    best = int(likely.argmin())
    return rank + best, float(likely[best])


_PESSIMISM: Final = 1.25


def _certify(space: _Space, ritz: _Ritz, rank: int, kept: int, goal: float, attempt: int) -> float:
    """An excess no smaller than the true one, except with this attempt's share of the failure probability."""
    failure = FAILURE_PROBABILITY / 2**attempt
    squared = float(ritz.residuals[:kept].sum())
    excess = inf
    probe = _Probe(space.matrix, ritz.u[:kept], _SEED + attempt)
    for _ in range(_PROBE_BLOCKS):
        probe.grow()
        gap = float(ritz.theta[rank - 1]) - probe.bound(failure)
        excess = squared / gap if gap > 0 else inf
        if excess <= goal or probe.full:
            break
    return excess


class _Probe:
    """A Krylov space from fresh Gaussian vectors for the part of M outside U."""

    def __init__(self, matrix: Dense, u: Matrix, seed: int) -> None:
        self.matrix, self.u = matrix, [u]
        start = _gaussian(_PROBES, matrix.shape[1], matrix.device, seed)
        self._next = outside(times_transposed(matrix, start), self.u)
        self._q: list[Tensor] = []
        self._w: list[Tensor] = []

    @property
    def full(self) -> bool:
        """Whether another block would not fit beside U."""
        used = len(self.u[0]) + _PROBES * (len(self._q) + 1)
        return used > min(self.matrix.shape)

    def grow(self) -> None:
        """One more block."""
        block = orthonormal(self._next, self.u + self._q)
        image = times(block, self.matrix)
        self._q.append(block)
        self._w.append(image)
        self._next = outside(times_transposed(self.matrix, image), self.u)

    def bound(self, failure: float) -> float:
        """``||G||`` at most, with this failure probability."""
        w = torch.cat(self._w)
        largest = float(torch.linalg.eigvalsh(w @ w.T)[-1])
        return largest * norm_factor(len(self._q) - 1, _PROBES, self.matrix.shape[1], failure)


def norm_factor(degree: int, probes: int, side: int, failure: float) -> float:
    """How much larger than the largest Ritz value the largest eigenvalue can be, except with probability `failure`.

    With N = M^T P M, P the projection to the complement, v its leading eigenvector and Omega the Gaussian start, the
    vector ``x = Omega c`` with ``v^T x = 1`` and smallest c has the rest ``||x||^2 - 1 = chi2(side - 1) /
    chi2(probes)``, called tau^2. Take ``q(N) x`` from the space with ``sqrt(t) q(t) = T_{2 degree + 1}(sqrt(t / ((1 -
    e) lambda)))``: odd Chebyshev polynomials stay within 1 below (1 - e) lambda. Its Rayleigh quotient is at least
    ``(1 - e) lambda / (1 + tau^2 / T(1 / sqrt(1 - e))^2)``.
    """
    share = log(2 / failure)
    high = side + 2 * sqrt(side * share) + 2 * share
    low = 2 * exp((2 / probes) * (lgamma(probes / 2 + 1) - share))
    order = 2 * degree + 1
    steps = [index / 200 for index in range(1, 200)]
    return min((1 + high / low / cosh(order * acosh(1 / sqrt(1 - e))) ** 2) / (1 - e) for e in steps)


def times(block: Matrix, matrix: Dense) -> Tensor:
    """``block @ matrix`` in float64, by row tiles of the matrix."""
    out = torch.zeros(block.shape[0], matrix.shape[1], dtype=torch.float64, device=matrix.device)
    for rows in row_tiles(matrix):
        out.addmm_(block[:, rows], matrix[rows].to(torch.float64))
    return out


def times_transposed(matrix: Dense, block: Matrix) -> Tensor:
    """``block @ matrix.T`` in float64, by row tiles of the matrix."""
    out = torch.empty(block.shape[0], matrix.shape[0], dtype=torch.float64, device=matrix.device)
    for rows in row_tiles(matrix):
        out[:, rows] = block @ matrix[rows].to(torch.float64).T
    return out


def row_tiles(matrix: Dense) -> list[slice]:
    """Row ranges of a few million elements: float64 copies of a narrower matrix stay small."""
    height = max(1, (1 << 22) // matrix.shape[1])
    return [slice(start, start + height) for start in range(0, matrix.shape[0], height)]


def outside(rows: Matrix, bases: list[Tensor]) -> Tensor:
    """What of the rows lies outside the row spaces of orthonormal bases; twice is enough against cancellation."""
    for _ in range(2):
        for basis in bases:
            rows = rows - (rows @ basis.T) @ basis
    return rows


def orthonormal(rows: Matrix, bases: list[Tensor]) -> Tensor:
    """Orthonormal rows with the span of `rows`, orthogonal to the bases also where `rows` has lost rank."""
    block = torch.linalg.qr(rows.T).Q.T
    clean: Tensor = torch.linalg.qr(outside(block, bases).T).Q.T
    return clean.contiguous()


def _gaussian(count: int, length: int, device: torch.device, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, length, generator=generator, dtype=torch.float64).to(device)
