"""Weights of a base read where they lie, for readers of many adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from registry.formats.snapshot import Floats
from registry.formats.values import floats

KEPT_BYTES: Final = 2**28
"""Of weights kept in memory: adapters of one kind ask for the same few."""


@dataclass(frozen=True)
class WeightPlace:
    """`length` bytes from byte `offset` of a file are a weight of this dtype and shape."""

    path: Path
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


@dataclass
class WeightFiles:
    """Weights by name as float32, null for one whose place is not known; can be sent to another process."""

    places: Mapping[str, WeightPlace]
    _kept: dict[str, Floats] = field(default_factory=dict, init=False, repr=False)

    def __reduce__(self) -> tuple[type[WeightFiles], tuple[Mapping[str, WeightPlace]]]:
        """What was read stays here: another process reads for itself."""
        return WeightFiles, (self.places,)

    def __call__(self, name: str) -> Floats | None:
        """Read a weight, or give it again."""
        place = self.places.get(name)
        if place is None or name in self._kept:
            return self._kept.get(name)
        try:
            with place.path.open("rb") as stream:
                stream.seek(place.offset)
                data = stream.read(place.length)
        except OSError:
            return None
        found = floats(data, place.dtype, place.shape) if len(data) == place.length else None
        if found is not None:
            self._keep(name, found)
        return found

    def _keep(self, name: str, weight: Floats) -> None:
        self._kept[name] = weight
        while len(self._kept) > 1 and sum(item.nbytes for item in self._kept.values()) > KEPT_BYTES:
            self._kept.pop(next(iter(self._kept)))
