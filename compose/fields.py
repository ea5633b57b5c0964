"""A member's values in the coordinates an operator sees, given tile by tile and never held whole.

In delta space a field is ``D_i = s_i B_i A_i`` in row tiles; in factor space it is ``A_i`` or ``B_i`` in one piece.
Trimming and dropping wrap a field; a tile is a function of its number alone, so it may be asked for again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from compose.masks import KeepMask
from compose.module import LoadedFactor
from compose.select import NOTHING, Threshold, kept_count, kth_magnitude
from compose.shapes import FactorA, FactorB, Matrix
from schemas.methods import PruneChoices, TiesChoices

TILE: Final = 1 << 16
"""Elements of a tile: what a core's own cache holds. Fixed, since the shape of a product decides its rounding."""


@dataclass(frozen=True)
class Tiling:
    """Row tiles of a matrix: `height` rows each, a multiple of 8 so that packed masks split at whole bytes."""

    rows: int
    columns: int
    height: int

    @property
    def count(self) -> int:
        """How many tiles."""
        return -(-self.rows // self.height)

    def span(self, tile: int) -> slice:
        """The rows of a tile."""
        return slice(tile * self.height, min((tile + 1) * self.height, self.rows))

    def start(self, tile: int) -> int:
        """The flat index at which a tile begins."""
        return tile * self.height * self.columns


def tiling(rows: int, columns: int) -> Tiling:
    """Tiles of a dense delta."""
    return Tiling(rows, columns, max(8, TILE // columns // 8 * 8))


def energy(values: Matrix) -> float:
    """Squared Frobenius norm, summed in float64."""
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


class Field(ABC):
    """One member's values."""

    tiling: Tiling

    @abstractmethod
    def tile(self, number: int) -> Matrix:
        """The values of one tile."""

    def tiles(self) -> Iterator[Tensor]:
        """All tiles in flat order."""
        return (self.tile(number) for number in range(self.tiling.count))

    def energy(self) -> float:
        """Squared Frobenius norm."""
        return sum(energy(tile) for tile in self.tiles())


class DeltaField(Field):
    """``D_i = s_i B_i A_i``, formed tile by tile in the work dtype."""

    def __init__(self, factor: LoadedFactor, work: torch.dtype) -> None:
        self.a: FactorA = factor.a.to(work)
        self.b: FactorB = factor.b.to(work) * factor.scale
        self.tiling = tiling(self.b.shape[0], self.a.shape[1])

    def tile(self, number: int) -> Matrix:
        """Rows of the product."""
        return self.b[self.tiling.span(number)] @ self.a


class TensorField(Field):
    """A factor as it is, in one tile."""

    def __init__(self, values: Matrix) -> None:
        self.values = values
        self.tiling = Tiling(values.shape[0], values.shape[1], values.shape[0])

    def tile(self, number: int) -> Matrix:
        """The whole factor."""
        return self.values[self.tiling.span(number)]


class Dropped(Field):
    """DARE: ``z / q`` times the values (R 0x05F)."""

    def __init__(self, source: Field, mask: KeepMask, density: float) -> None:
        self.source, self.mask, self.density = source, mask, density
        self.tiling = source.tiling

    def tile(self, number: int) -> Matrix:
        """Kept values divided by q, zeros elsewhere."""
        values = self.source.tile(number)
        if self.density == 1.0:
            return values
        start = self.tiling.start(number)
        keep = self.mask.between(start, start + values.numel()).to(values.device).view(torch.uint8)
        return keep.to(values.dtype).view(values.shape).mul_(values).div_(self.density)


class Trimmed(Field):
    """The top `density` fraction by magnitude, zeros elsewhere (R 0x05E step 1)."""

    def __init__(self, source: Field, choices: TiesChoices | PruneChoices) -> None:
        self.source, self.choices = source, choices
        self.tiling = source.tiling

    @cached_property
    def threshold(self) -> Threshold:
        """The smallest kept magnitude."""
        count = self.tiling.rows * self.tiling.columns
        k = kept_count(self.choices.density, count, self.choices.k_rule)
        return NOTHING if k == 0 else kth_magnitude(self.source.tiles, k)

    def tile(self, number: int) -> Matrix:
        """Kept values."""
        values = self.source.tile(number)
        if self.choices.density == 1.0:
            return values
        return self.threshold.trim(values, self.tiling.start(number))
