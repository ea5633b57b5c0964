"""DARE keep-masks that any language, machine, tile size and thread count draws alike.

Coordinate i (row-major) is kept iff the little-endian u32 number i of a BLAKE3 derive-key stream is below ``floor(q
2^32)``. The key material is the RFC 8785 form of ``[seed, adapter digest, module, role]`` under the context
`adapter-registry v1 mask`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Final, Literal

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray

from compose.shapes import Mask
from schemas.canonical import canonical_bytes
from schemas.composition import MaskRef
from schemas.digests import Digest, blob_digest

MaskRole = Literal["delta", "a", "b"]

CONTEXT: Final = "adapter-registry v1 mask"
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class KeepMask:
    """A drawn mask of `count` coordinates, packed eight a byte, lowest bit first, the last byte filled with zeros."""

    packed: NDArray[np.uint8]
    count: int
    retained: int

    def between(self, start: int, stop: int) -> Mask:
        """Coordinates `start` to `stop` as booleans; `start` is a multiple of 8."""
        bits = np.unpackbits(self.packed[start // 8 : (stop + 7) // 8], count=stop - start, bitorder="little")
        return torch.from_numpy(bits.view(np.bool_))

    def ref(self, adapter: Digest, role: MaskRole) -> MaskRef:
        """What the manifest records of it."""
        return MaskRef(adapter=adapter, role=role, mask=blob_digest(self.packed.tobytes()), retained=self.retained)


def draw_mask(seed: str, adapter: Digest, module: str, role: MaskRole, density: float, count: int) -> KeepMask:
    """Draw the mask of one tensor: q = `density`, `count` coordinates; density 1 keeps all without a draw."""
    threshold = floor(density * 2**32)
    if threshold == 2**32:
        return KeepMask(np.packbits(np.ones(count, dtype=np.bool_), bitorder="little"), count, count)
    stream = blake3(canonical_bytes([seed, adapter, module, role]), derive_key_context=CONTEXT)
    packed = np.empty((count + 7) // 8, dtype=np.uint8)
    retained = 0
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        numbers = np.frombuffer(stream.digest(length=4 * (stop - start), seek=4 * start), dtype="<u4")
        keep = numbers < np.uint32(threshold)
        retained += int(np.count_nonzero(keep))
        packed[start // 8 : (stop + 7) // 8] = np.packbits(keep, bitorder="little")
    return KeepMask(packed, count, retained)
