"""Truncated SVD of a dense matrix by block Krylov, with a bound on how far from the best it can be.

The basis V of right vectors is grown block by block, all blocks kept and orthogonalised twice (Musco and Musco 2015);
the images ``Y = V M^T`` give the Ritz triplets. The search multiplies in float32, which only decides what is found;
the leading Ritz vectors then go through M once in float64, and what is returned and certified is float64. Where
float32 cannot tell the tail from rounding, the search is repeated in float64.

Bound. Let N = M^T M, V the m leading Ritz vectors with Ritz values theta, R = N V - V diag(theta) and G the
compression of N to the complement of V. For any X with r orthonormal columns and Y its part outside V, ``tr(X^T N X)
<= sum_{i<=r} theta_i - theta_r ||Y||^2 + 2 ||R||_F ||Y||_F + ||G|| ||Y||^2``, so the energy the best rank r captures
beyond ours is at most ``||R||_F^2 / (theta_r - ||G||)``. ``||G||`` is bounded by a probe with fresh random vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

import torch
from torch import Tensor

from compose.module import Certificate
from compose.passes import across, gaussian, orthonormal, outside, row_tiles, svd_of_rows, through
from compose.probe import Probe
from compose.shapes import Dense, FactorA, FactorB, RitzLeft, RitzRight, RitzValues, Values

FAILURE_PROBABILITY: Final = 1e-9
TOLERANCE: Final = 1e-5
"""Excess of the discarded energy over the optimum, relative to what is discarded."""

SMALL: Final = 256
"""Up to this side LAPACK's whole SVD is faster."""

_OVERSAMPLING: Final = 16
_FIRST_BLOCKS: Final = 3
_PROBE_BLOCKS: Final = 10
_PESSIMISM: Final = (4.0, 1.25)
"""How much larger than the next Ritz value ``||G||`` may be: what a probe of three blocks allows, and one of ten."""
_SEED: Final = 20230
_INVARIANT: Final = {torch.float32: 1e-6, torch.float64: 1e-13}
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
        matrix: float32 or float64.
        rank: 1 to the smaller side.
        exact: use LAPACK's SVD at any size.
    """
    found = None
    if not exact and min(matrix.shape) > max(SMALL, _FIRST_BLOCKS * (rank + _OVERSAMPLING)):
        found = _search(matrix, rank, torch.float32, 1) or _search(matrix, rank, torch.float64, 2)
    return found or _whole(matrix, rank)


def _search(matrix: Dense, rank: int, dtype: torch.dtype, attempt: int) -> Truncated | None:
    """Grow a space until its best rank promises the goal; null where that is not certified then, or the smaller side
    does not suffice.

    Attempt number n may fail with n's share of the failure probability, ``2^-n``.
    """
    space = _Space(matrix, rank + _OVERSAMPLING, dtype)
    space.grow(_FIRST_BLOCKS)
    while space.fits:
        ritz = space.ritz()
        if space.invariant:
            return _settle(space, ritz, rank) if dtype == torch.float64 else None
        goal = TOLERANCE * max(space.energy - float(ritz.theta[:rank].sum()), 0.0)
        kept = _choose(ritz, rank, goal)
        if kept is not None:
            refined = _refine(matrix, ritz.vh[:kept])
            probe = Probe(matrix, refined.vh, _SEED + attempt)
            excess = _certify(refined, probe, rank, goal, FAILURE_PROBABILITY / 2**attempt)
            return (
                _cut(refined, rank, Certificate(excess, FAILURE_PROBABILITY, space.dimension))
                if excess <= goal
                else None
            )
        space.grow(1 + space.blocks // 8)
    return None


def _settle(space: _Space, ritz: _Ritz, rank: int) -> Truncated | None:
    """An invariant space holds all of M, unless M repeats a singular value more often than a block has vectors."""
    excess = space.remainder()
    if excess > _ROUNDING * space.energy:
        return None
    return _cut(ritz, rank, Certificate(excess, 0.0, space.dimension))


def _whole(matrix: Dense, rank: int) -> Truncated:
    u, s, vh = torch.linalg.svd(matrix.to(torch.float64), full_matrices=False)
    return Truncated(u[:, :rank], s[:rank], vh[:rank], Certificate(0.0, 0.0, min(matrix.shape)))


@dataclass(frozen=True)
class _Ritz:
    """Triplets of M inside a space, left and right vectors in rows, and squared residuals ``||N v - s^2 v||^2``."""

    u: RitzLeft
    s: RitzValues
    vh: RitzRight
    residuals: RitzValues

    @property
    def theta(self) -> RitzValues:
        """Ritz values of N."""
        return self.s.square()


class _Space:
    """The growing right Krylov basis V of M and its image Y = V M^T, all in rows."""

    def __init__(self, matrix: Dense, width: int, dtype: torch.dtype) -> None:
        self.matrix, self.width, self.dtype = matrix, width, dtype
        self.energy = float(torch.linalg.vector_norm(matrix, dtype=torch.float64)) ** 2
        self._next = across(gaussian(width, matrix.shape[0], matrix.device, _SEED), matrix, dtype)
        self._v: list[Tensor] = []
        self._y: list[Tensor] = []

    @property
    def blocks(self) -> int:
        """How often it grew."""
        return len(self._v)

    @property
    def dimension(self) -> int:
        """Rows of the basis."""
        return self.width * self.blocks

    @property
    def fits(self) -> bool:
        """Whether the next block would still be smaller than M."""
        return self.dimension + self.width <= min(self.matrix.shape)

    def grow(self, blocks: int) -> None:
        """Add blocks; afterwards `_next` is the part of ``N v`` of the last block that lies outside the basis."""
        for _ in range(blocks):
            block = orthonormal(self._next, self._v)
            image, again = through(self.matrix, block, self.dtype)
            self._v.append(block)
            self._y.append(image)
            self._next = outside(again, self._v)

    @property
    def invariant(self) -> bool:
        """Whether another block would hold nothing but rounding."""
        floor = _INVARIANT[self.dtype] * max(self.energy, torch.finfo(torch.float64).tiny)
        return float(torch.linalg.norm(self._next)) <= floor

    def ritz(self) -> _Ritz:
        """Ritz triplets with their residuals, which only the last block has."""
        turn, s, u = svd_of_rows(torch.cat(self._y))
        residuals = (turn[-self.width :].T @ self._next).square().sum(dim=1)
        return _Ritz(u, s, turn.T @ torch.cat(self._v), residuals)

    def remainder(self) -> float:
        """``||M - M V^T V||_F^2``, by rows: the best rank captures at most this much more (Ky Fan)."""
        v, y = torch.cat(self._v), torch.cat(self._y)
        total = 0.0
        for rows in row_tiles(self.matrix):
            total += float((self.matrix[rows].to(torch.float64) - y[:, rows].T @ v).square().sum())
        return total


def _cut(ritz: _Ritz, rank: int, certificate: Certificate) -> Truncated:
    return Truncated(ritz.u[:rank].T.contiguous(), ritz.s[:rank], ritz.vh[:rank].contiguous(), certificate)


def _choose(ritz: _Ritz, rank: int, goal: float) -> int | None:
    """How many Ritz vectors to set apart: the fewest that promise the goal, as the next Ritz value resembles ``||G||``.

    All figures of the search are float32's, so half the goal is promised.
    """
    for factor in _PESSIMISM:
        gaps = ritz.theta[rank - 1] - factor * ritz.theta[rank:]
        promised = torch.where(gaps > 0, ritz.residuals.cumsum(dim=0)[rank - 1 : -1] / gaps, inf)
        enough = (promised <= goal / 2).nonzero()
        if len(enough):
            return rank + int(enough[0])
    return None


def _refine(matrix: Dense, v: RitzRight) -> _Ritz:
    """The triplets in the span of `v`, with all of their residuals, in float64."""
    v = orthonormal(v, [])
    image, again = through(matrix, v, torch.float64)
    turn, s, u = svd_of_rows(image)
    vh = turn.T @ v
    residuals = (turn.T @ again - s[:, None].square() * vh).square().sum(dim=1)
    return _Ritz(u, s, vh, residuals)


def _certify(ritz: _Ritz, probe: Probe, rank: int, goal: float, failure: float) -> float:
    """An excess no smaller than the true one, except with this probability."""
    squared, excess = float(ritz.residuals.sum()), inf
    for _ in range(_PROBE_BLOCKS):
        probe.grow()
        gap = float(ritz.theta[rank - 1]) - probe.bound(failure)
        excess = squared / gap if gap > 0 else inf
        if excess <= goal or probe.full:
            break
    return excess
