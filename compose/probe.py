"""An upper bound, with a stated failure probability, on the largest eigenvalue of ``M^T M`` outside given rows."""

from __future__ import annotations

from math import acosh, cosh, exp, lgamma, log, sqrt
from typing import Final

import torch
from torch import Tensor

from compose.passes import across, gaussian, orthonormal, outside, through
from compose.shapes import Dense, RitzRight

_PROBES: Final = 16
_SLACK: Final = 1 + 1e-4
"""Far above the rounding of products in float32, which only have to bound."""


class Probe:
    """A Krylov space from fresh Gaussian vectors for the part of M outside orthonormal rows `v`."""

    def __init__(self, matrix: Dense, v: RitzRight, seed: int) -> None:
        self.matrix, self.v = matrix, [v]
        start = gaussian(_PROBES, matrix.shape[0], matrix.device, seed)
        self._next = outside(across(start, matrix, torch.float32), self.v)
        self._q: list[Tensor] = []
        self._y: list[Tensor] = []

    @property
    def full(self) -> bool:
        """Whether another block would not fit beside `v`."""
        used = len(self.v[0]) + _PROBES * (len(self._q) + 1)
        return used > min(self.matrix.shape)

    def grow(self) -> None:
        """One more block."""
        block = orthonormal(self._next, self.v + self._q)
        image, again = through(self.matrix, block, torch.float32)
        self._q.append(block)
        self._y.append(image)
        self._next = outside(again, self.v)

    def bound(self, failure: float) -> float:
        """The largest eigenvalue at most, with this failure probability."""
        y = torch.cat(self._y)
        largest = float(torch.linalg.eigvalsh(y @ y.T)[-1])
        return _SLACK * largest * norm_factor(len(self._q) - 1, _PROBES, self.matrix.shape[0], failure)


def norm_factor(degree: int, probes: int, side: int, failure: float) -> float:
    """How much larger than the largest Ritz value the largest eigenvalue can be, except with probability `failure`.

    With K = M P M^T, P the projection to the complement, u its leading eigenvector and Omega the Gaussian start
    [side, probes], the vector ``x = Omega c`` with ``u^T x = 1`` and smallest c has the rest ``||x||^2 - 1 = chi2(side
    - 1) / chi2(probes)``, called tau^2. Take ``P M^T q(K) x`` from the space with ``sqrt(t) q(t) = T_{2 degree +
    1}(sqrt(t / ((1 - e) lambda)))``: odd Chebyshev polynomials stay within 1 below (1 - e) lambda. Its Rayleigh
    quotient is at least ``(1 - e) lambda / (1 + tau^2 / T(1 / sqrt(1 - e))^2)``.
    """
    share = log(2 / failure)
    high = side + 2 * sqrt(side * share) + 2 * share
    low = 2 * exp((2 / probes) * (lgamma(probes / 2 + 1) - share))
    order = 2 * degree + 1
    steps = [index / 200 for index in range(1, 200)]
    return min((1 + high / low / cosh(order * acosh(1 / sqrt(1 - e))) ** 2) / (1 - e) for e in steps)
