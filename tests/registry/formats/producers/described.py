"""What a reading says an adapter does, computed with NumPy from the bytes its locations lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from registry.formats import AdapterReading, read_adapter, read_base
from schemas.adapter import FactorManifest
from schemas.base import TensorRef
from tests.registry.formats.producers.bases import base_weights, write_base

Array = NDArray[np.float64]
_TYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}


def read(directory: Path, model_type: str, scratch: Path) -> AdapterReading:
    """An adapter directory read beside one of the small bases."""
    base = read_base(write_base(scratch / "base", model_type)).manifest
    (scratch / "made").mkdir()
    return read_adapter(directory, base, scratch=scratch / "made")


class Described:
    """The deltas of one reading."""

    def __init__(self, directory: Path, reading: AdapterReading, model_type: str) -> None:
        self.reading = reading
        self.weights = base_weights(model_type)
        paths = {file.digests.digest: directory / file.path for file in reading.files}
        paths |= {file.digests.digest: reading.made[file.path] for file in reading.files if file.path in reading.made}
        self._places = {place.tensor: (paths[place.file], place) for place in reading.locations}

    def array(self, ref: TensorRef) -> Array:
        """The numbers of a tensor."""
        path, place = self._places[ref.tensor]
        assert (place.dtype, place.shape) == (ref.dtype, ref.shape)
        data = path.read_bytes()[place.offset : place.offset + place.length]
        if ref.dtype == "BF16":
            return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64).reshape(ref.shape)
        return np.frombuffer(data, _TYPES[ref.dtype]).astype(np.float64).reshape(ref.shape)

    def delta(self, factor: FactorManifest) -> Array:
        """s B A in the layout of the base weight, without what extras do."""
        product = self.array(factor.b) @ self.array(factor.a)
        return factor.scale.value * (product.T if factor.order == "(B@A)^T" else product)

    def merged(self, factor: FactorManifest) -> Array:
        """The base weight after the adapter; with a magnitude every output row has that norm."""
        weight: Array = self.weights[f"{factor.module}.weight"].astype(np.float64)
        changed = weight + self.delta(factor)
        if "magnitude" not in factor.extra:
            return changed
        norms = np.linalg.norm(changed, axis=1, keepdims=True)
        result: Array = self.array(factor.extra["magnitude"])[:, None] * changed / norms
        return result

    def weights_after(self) -> dict[str, Array]:
        """Every changed weight by the base's name."""
        return {f"{factor.module}.weight": self.merged(factor) for factor in self.reading.manifest.factors}


def close(found: Array, expected: NDArray[Any]) -> bool:
    """Equal to 1e-6, relative to the largest number; what overflows, overflows alike."""
    if found.shape != expected.shape or not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return False
    finite = np.isfinite(expected)
    scale = max(float(np.abs(expected[finite]).max(initial=0.0)), 1.0)
    return float(np.abs(found[finite] - expected[finite]).max(initial=0.0)) <= 1e-6 * scale
