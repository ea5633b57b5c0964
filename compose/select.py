"""The exact k-th largest magnitude by radix select on the bits of the floats, in any number of tiles, without a sort.

For finite floats the order of magnitudes is the order of the bit patterns without the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor, inf
from typing import Final, Literal

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from compose.shapes import Matrix

Tiles = Callable[[], Iterator[Tensor]]

_INTEGER: Final = {torch.float64: torch.int64, torch.float32: torch.int32}
_DIGIT: Final = 16
_FEW: Final = 1 << 20


@dataclass(frozen=True)
class Threshold:
    """Keep what is larger than `magnitude`, and of what equals it the flat indices up to `last`."""

    magnitude: float
    last: int

    def trim(self, values: Matrix, start: int) -> Matrix:
        """A tile with zeros for what is not kept; the tile begins at flat index `start`."""
        if self.magnitude == 0.0:
            return values
        if self.last >= start + values.numel() - 1:
            return hardshrink(values, self._below(values.dtype))
        kept = hardshrink(values, self.magnitude)
        if self.last >= start:
            head, source = (flat.view(-1)[: self.last + 1 - start] for flat in (kept, values))
            head.copy_(torch.where(source.abs() == self.magnitude, source, head))
        return kept

    def _below(self, dtype: torch.dtype) -> float:
        """The next smaller number of the dtype: `hardshrink` drops what equals its bound."""
        return torch.nextafter(torch.tensor(self.magnitude, dtype=dtype), torch.tensor(0.0, dtype=dtype)).item()


NOTHING: Final = Threshold(inf, -1)
"""Keeps no finite value."""


def kept_count(density: float, count: int, rule: Literal["floor", "round"]) -> int:
    """k of a density: ``floor(density n)`` as PEFT, or to the nearest, ties to even."""
    return floor(density * count) if rule == "floor" else round(density * count)


def kth_magnitude(tiles: Tiles, k: int) -> Threshold:
    """The threshold that keeps exactly the k largest magnitudes, equal ones by lower flat index.

    `tiles` yields the same contiguous tiles, in flat order, each time it is called: the values are never held together.
    """
    if k == 0:
        return NOTHING
    level, collected = _bits(tiles), False
    dtype = next(tiles()).dtype
    prefix, wanted, shift = 0, k, dtype.itemsize * 8 - 1
    while shift:
        width = shift % _DIGIT or _DIGIT
        counts = _histogram(level, prefix, shift, width)
        digit, above = _descend(counts, wanted)
        prefix, wanted, shift = prefix << width | digit, wanted - above, shift - width
        if not collected and int(counts[digit]) <= _FEW:
            level, collected = _once(_collect(level, prefix, shift)), True
    return Threshold(_value(prefix, dtype), _locate(level, prefix, wanted))


Level = Callable[[], Iterator[tuple[Tensor, Tensor]]]


def _bits(tiles: Tiles) -> Level:
    """Magnitude bits of each tile, and the flat index at which it begins."""

    def level() -> Iterator[tuple[Tensor, Tensor]]:
        start = 0
        for tile in tiles():
            yield tile.abs().view(_INTEGER[tile.dtype]).view(-1), torch.tensor(start)
            start += tile.numel()

    return level


def _once(few: tuple[Tensor, Tensor]) -> Level:
    return lambda: iter([few])


def _histogram(level: Level, prefix: int, shift: int, width: int) -> Tensor:
    """How many of the patterns that begin with `prefix` above bit `shift` go on with each digit of `width` bits."""
    counts = torch.zeros(1 << width, dtype=torch.int64)
    for bits, _ in level():
        digits = bits >> (shift - width)
        if shift < bits.element_size() * 8 - 1:
            digits = digits[(digits >> width) == prefix] & ((1 << width) - 1)
        counts += torch.bincount(digits, minlength=1 << width).cpu()
    return counts


def _descend(counts: Tensor, wanted: int) -> tuple[int, int]:
    """The digit, from the largest down, that holds the wanted place, and how many lie above it."""
    from_above = counts.flip(0).cumsum(0)
    steps = int(torch.searchsorted(from_above, wanted))
    return len(counts) - 1 - steps, int(from_above[steps - 1]) if steps else 0


def _collect(level: Level, prefix: int, shift: int) -> tuple[Tensor, Tensor]:
    """The few patterns that begin with `prefix`, and their flat indices."""
    found, places = [], []
    for bits, start in level():
        where = ((bits >> shift) == prefix).nonzero().view(-1)
        found.append(bits[where])
        places.append(where + start)
    return torch.cat(found), torch.cat(places)


def _locate(level: Level, pattern: int, wanted: int) -> int:
    """The flat index of the wanted-th value of this pattern."""
    for bits, start in level():
        where = (bits == pattern).nonzero().view(-1)
        if wanted <= len(where):
            place = where[wanted - 1]
            return int(start[place] if start.ndim else start + place)
        wanted -= len(where)
    raise AssertionError("the k-th value exists")


def _value(pattern: int, dtype: torch.dtype) -> float:
    return torch.tensor(pattern, dtype=_INTEGER[dtype]).view(dtype).item()
