"""One module in work: what an operator gets and what it gives. Operators are functions of these alone, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from compose.shapes import FactorA, FactorB
from schemas.composition import MaskRef
from schemas.digests import Digest
from schemas.methods import Choices


@dataclass(frozen=True)
class LoadedFactor:
    """One member in one module, as stored: ``D = scale * b @ a``."""

    adapter: Digest
    weight: float
    scale: float
    a: FactorA
    b: FactorB

    @property
    def rank(self) -> int:
        """r."""
        return self.a.shape[0]

    @property
    def coefficient(self) -> float:
        """``c = lambda s``."""
        return self.weight * self.scale


@dataclass(frozen=True)
class ModuleInput:
    """All members that act on one module, in request order; `rank` is the rank of the output."""

    module: str
    factors: tuple[LoadedFactor, ...]
    choices: Choices
    rank: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(d_out, d_in)``."""
        return self.factors[0].b.shape[0], self.factors[0].a.shape[1]


@dataclass(frozen=True)
class Certificate:
    """``discarded <= optimum + excess`` for a truncated SVD, wrong with at most this probability."""

    excess: float
    failure_probability: float
    basis: int


@dataclass(frozen=True)
class Drop:
    """Relative error of one member's DARE draw, in its own space: expected and drawn."""

    expected: float
    drawn: float


@dataclass(frozen=True)
class Figures:
    """The floating measurement of one module.

    `norm`, `singular_values` and `numerical_rank` belong to the target: the exact sum, or the dense delta the method
    defines. `error` is ``||target - stored||_F`` of the stored factors, `rounding` the part of it made by storing.
    `products` ``[J, J]`` are ``<D_i, D_j>`` of the members. Fields a method does not own are null; `conflict` is
    (coordinates with both signs, coordinates with any kept value); `deviation` is ``||target - exact sum||_F`` of a
    method that is not a sum.
    """

    norm: float
    singular_values: tuple[float, ...]
    numerical_rank: int | None
    discarded_energy: float
    error: float
    rounding: float
    products: NDArray[np.float64] = field(compare=False)
    deviation: float | None = None
    cross_term_norm: float | None = None
    gauge_sensitivity: float | None = None
    conflict: tuple[int, int] | None = None
    drops: tuple[Drop, ...] = ()
    certificate: Certificate | None = None


@dataclass(frozen=True)
class ModuleOutput:
    """The composed pair in the store dtype (``delta = b @ a``), its discrete facts and its measurement."""

    a: FactorA
    b: FactorB
    figures: Figures
    retained: tuple[int, ...] = ()
    masks: tuple[MaskRef, ...] = ()
