"""Whether factors repeat the base: the sign of an initial snapshot, or of native factors, whatever the flag says.

PiSSA, OLoRA and their kin start with a product D that is a part of W, so that <W, D> is <D, D> and the correlation
<W, D> / (|W| |D|) is large. Trained plain factors have next to none (V 0x06; measured on real adapters: 0.38 for a
snapshot, at most 0.02 for plain ones).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from registry.formats.match import Placed
from registry.formats.safetensors_file import TensorEntry

Floats = NDArray[np.float32]
ReadWeight = Callable[[str], Floats | None]
"""A weight of the base by name, null where its bytes are not at hand."""
ReadEntry = Callable[[TensorEntry], Floats | None]
MOST_MODULES: Final = 4
LEAST: Final = 0.03
_SPREAD: Final = 10.0
"""How many standard deviations of chance, 1 / sqrt(d_out d_in) for a fixed W, are no chance."""
_PART: Final = (0.5, 2.0)


@dataclass(frozen=True)
class Repetition:
    """Medians over the modules looked at: correlation of product and base weight, and <W, D> / <D, D>."""

    correlation: float
    share: float
    chance: float

    @property
    def found(self) -> bool:
        """Whether the factors hold a part of the base weight."""
        return self.correlation >= max(LEAST, _SPREAD * self.chance) and _PART[0] <= self.share <= _PART[1]


def repetition(placed: Sequence[Placed], read: ReadEntry, weight: ReadWeight) -> Repetition | None:
    """Compare a few modules with their base weights; null where none can be read.

    A few are enough: an initializer treats all modules alike.
    """
    plain = [place for place in placed if place.layer.kind == "linear" and place.rank and len(place.layer.weights) == 1]
    chosen = plain[:: max(1, -(-len(plain) // MOST_MODULES))]
    with np.errstate(over="ignore", invalid="ignore"):
        found = [result for place in chosen for result in _compared(place, read, weight)]
    if not found:
        return None
    correlations, shares, chances = zip(*found, strict=True)
    return Repetition(median(correlations), median(shares), median(chances))


def _compared(place: Placed, read: ReadEntry, weight: ReadWeight) -> Iterable[tuple[float, float, float]]:
    a, b = read(place.piece.tensors["a"]), read(place.piece.tensors["b"])
    w = weight(place.layer.weights[0])
    if a is None or b is None or w is None or w.shape != (b.shape[0], a.shape[1]):
        return
    scale = place.piece.scale.value
    inner, square = _inner(w, a, b)
    flat = w.ravel()
    size, norm = sqrt(max(square, 0.0)) * abs(scale), float(np.sqrt(flat.dot(flat)))
    if isfinite(inner) and isfinite(size) and size and norm:
        yield inner * scale / (size * norm), inner * scale / size**2, 1.0 / sqrt(w.size)


def _inner(w: Floats, a: Floats, b: Floats) -> tuple[float, float]:
    """<W, B A> and <B A, B A>, by the product itself where it is smaller than the Gram matrices."""
    if a.shape[0] >= min(w.shape):
        product = b @ a
        return float((w * product).sum()), float((product * product).sum())
    return float(((b.T @ w) * a).sum()), float(((b.T @ b) * (a @ a.T)).sum())
