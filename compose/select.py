"""The exact k-th largest magnitude in any number of tiles, without a sort.

For finite floats the order of magnitudes is the order of the bit patterns without the sign. A sample brackets the
k-th pattern; one pass counts what lies above the bracket and collects what lies inside, where the exact place is
found. When the bracket misses, or holds too many, a radix select over all bits finds it instead. Patterns are numpy
arrays: its comparisons and its search for the few inside are ten times faster than torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import floor, inf, sqrt
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import hardshrink

from compose.shapes import Matrix

Tiles = Callable[[], Iterator[Tensor]]

_INTEGER: Final = {torch.float64: torch.int64, torch.float32: torch.int32}
_DIGIT: Final = 16
_FEW: Final = 1 << 20
_STRIDE: Final = 251
"""One value in so many is sampled; a prime, so that the sample visits all columns."""
_DEVIATIONS: Final = 5.0


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
            return hardshrink(values, _below(self.magnitude, values.dtype))
        kept = hardshrink(values, self.magnitude)
        if self.last >= start:
            head, source = (flat.view(-1)[: self.last + 1 - start] for flat in (kept, values))
            head.copy_(torch.where(source.abs() == self.magnitude, source, head))
        return kept


NOTHING: Final = Threshold(inf, -1)
"""Keeps no finite value."""


@lru_cache(maxsize=64)
def _below(magnitude: float, dtype: torch.dtype) -> float:
    """The next smaller number of the dtype: `hardshrink` drops what equals its bound."""
    return torch.nextafter(torch.tensor(magnitude, dtype=dtype), torch.tensor(0.0, dtype=dtype)).item()


def kept_count(density: float, count: int, rule: Literal["floor", "round"]) -> int:
    """k of a density: ``floor(density n)`` as PEFT, or to the nearest, ties to even."""
    return floor(density * count) if rule == "floor" else round(density * count)


Bits = NDArray[Any]
"""Magnitude bits, int32 or int64."""
Places = NDArray[np.int64]
Level = Callable[[], Iterator[tuple[Bits, Places | int]]]
"""Patterns with their flat indices, or a whole tile of them with the flat index at which it begins."""


def kth_magnitude(tiles: Tiles, k: int) -> Threshold:
    """The threshold that keeps exactly the k largest magnitudes, equal ones by lower flat index.

    `tiles` yields the same contiguous tiles, in flat order, each time it is called: the values are never held together.
    """
    if k == 0:
        return NOTHING
    dtype = next(tiles()).dtype
    level, wanted, few = _bits(tiles), k, False
    prefix, shift = 0, dtype.itemsize * 8 - 1
    bracketed = _collect(level, *_bracket(level, k, 2**shift - 1))
    if bracketed is not None and bracketed.above < k <= bracketed.above + len(bracketed.bits):
        level, wanted, few = bracketed.level, k - bracketed.above, True
    while shift:
        width = shift % _DIGIT or _DIGIT
        counts = _histogram(level, prefix, shift, width)
        digit, above = _descend(counts, wanted)
        prefix, wanted, shift = prefix << width | digit, wanted - above, shift - width
        if not few and counts[digit] <= _FEW:
            collected = _collect(level, prefix << shift, (prefix + 1 << shift) - 1)
            assert collected is not None, "they were counted"
            level, few = collected.level, True
    return Threshold(_value(prefix, dtype), _locate(level, prefix, wanted))


def _bits(tiles: Tiles) -> Level:
    def level() -> Iterator[tuple[Bits, int]]:
        start = 0
        for tile in tiles():
            yield tile.abs().view(_INTEGER[tile.dtype]).view(-1).cpu().numpy(), start
            start += tile.numel()

    return level


def _bracket(level: Level, k: int, largest: int) -> tuple[int, int]:
    """Two patterns of a sample between which the k-th largest of all lies, very probably."""
    parts, total = [], 0
    for bits, _ in level():
        parts.append(bits[-total % _STRIDE :: _STRIDE].copy())
        total += len(bits)
    sample = np.sort(np.concatenate(parts))
    share = k / total
    place, margin = (1 - share) * len(sample), _DEVIATIONS * (1 + sqrt(len(sample) * share * (1 - share)))
    low, high = floor(place - margin), floor(place + margin)
    return int(sample[low]) if low >= 0 else 0, int(sample[high]) if high < len(sample) else largest


@dataclass(frozen=True)
class _Collected:
    """The patterns of a range with their flat indices, and how many lie above it."""

    above: int
    bits: Bits
    places: Places

    def level(self) -> Iterator[tuple[Bits, Places]]:
        """As a level."""
        return iter([(self.bits, self.places)])


def _collect(level: Level, low: int, high: int) -> _Collected | None:
    """The patterns from `low` to `high`; null when they are not few."""
    above = count = 0
    found, places = [], []
    for bits, start in level():
        upper = bits >= low
        over = bits > high
        above += int(np.count_nonzero(over))
        where = np.flatnonzero(upper ^ over)
        count += len(where)
        if count > _FEW:
            return None
        found.append(bits[where])
        places.append(where + start)
    return _Collected(above, np.concatenate(found), np.concatenate(places))


def _histogram(level: Level, prefix: int, shift: int, width: int) -> NDArray[np.int64]:
    """How many of the patterns that begin with `prefix` above bit `shift` go on with each digit of `width` bits."""
    counts = np.zeros(1 << width, dtype=np.int64)
    for bits, _ in level():
        digits = bits >> (shift - width)
        if shift < bits.itemsize * 8 - 1:
            digits = digits[(digits >> width) == prefix] & ((1 << width) - 1)
        counts += np.bincount(digits, minlength=1 << width)
    return counts


def _descend(counts: NDArray[np.int64], wanted: int) -> tuple[int, int]:
    """The digit, from the largest down, that holds the wanted place, and how many lie above it."""
    from_above = np.cumsum(counts[::-1])
    steps = int(np.searchsorted(from_above, wanted))
    return len(counts) - 1 - steps, int(from_above[steps - 1]) if steps else 0


def _locate(level: Level, pattern: int, wanted: int) -> int:
    """The flat index of the wanted-th value of this pattern."""
    counts = np.cumsum([np.count_nonzero(bits == pattern) for bits, _ in level()])
    number = int(np.searchsorted(counts, wanted))
    bits, start = next(islice(level(), number, None))
    place = np.flatnonzero(bits == pattern)[wanted - counts[number] - 1]
    return int(place + start if isinstance(start, int) else start[place])


def _value(pattern: int, dtype: torch.dtype) -> float:
    return torch.tensor(pattern, dtype=_INTEGER[dtype]).view(dtype).item()
