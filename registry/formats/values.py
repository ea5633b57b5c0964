"""Checks of tensor values on their bit patterns, block by block, without a tensor library's arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class _Bits:
    """How a floating dtype is laid out: without its sign a value from `not_finite` up is infinite or NaN."""

    dtype: str
    not_finite: int
    magnitude: int

    @property
    def width(self) -> int:
        return np.dtype(self.dtype).itemsize


_LAYOUTS: Final = {
    "F64": _Bits("<u8", 0x7FF0_0000_0000_0000, 0x7FFF_FFFF_FFFF_FFFF),
    "F32": _Bits("<u4", 0x7F80_0000, 0x7FFF_FFFF),
    "F16": _Bits("<u2", 0x7C00, 0x7FFF),
    "BF16": _Bits("<u2", 0x7F80, 0x7FFF),
    "F8_E5M2": _Bits("<u1", 0x7C, 0x7F),
    # E4M3 has no infinity: only the all-ones pattern is NaN.
    "F8_E4M3": _Bits("<u1", 0x7F, 0x7F),
}


class ValueScan:
    """Finds the first value that is not finite, and whether all are zero, over blocks that may end within an element.

    Integer dtypes are always finite and are not looked at.
    """

    def __init__(self, dtype: str) -> None:
        self._bits = _LAYOUTS.get(dtype)
        self._seen = 0
        self._begun = b""
        self.first_not_finite: int | None = None
        self.all_zero = True

    def update(self, block: bytes | memoryview) -> None:
        """Take in the next bytes."""
        if self._bits is None:
            self.all_zero = self.all_zero and not any(block)
            return
        if self._begun or len(block) % self._bits.width:
            known = self._begun + block
            whole = len(known) - len(known) % self._bits.width
            block, self._begun = known[:whole], known[whole:]
        values = np.frombuffer(block, dtype=self._bits.dtype)
        if values.size and (self.all_zero or self.first_not_finite is None):
            magnitudes = values & values.dtype.type(self._bits.magnitude)
            largest = int(magnitudes.max())
            self.all_zero = self.all_zero and not largest
            if self.first_not_finite is None and largest >= self._bits.not_finite:
                self.first_not_finite = self._seen + int((magnitudes >= self._bits.not_finite).argmax())
        self._seen += values.size


def all_zero(data: memoryview, dtype: str, lengths: Sequence[int]) -> list[bool] | None:
    """Whether all values are zero, of tensors of so many bytes one behind the other: one look for many small ones.

    Null where a value is not finite, a tensor is empty, or the dtype is no floating one: `ValueScan` tells more.
    """
    bits = _LAYOUTS.get(dtype)
    if bits is None or min(lengths, default=0) == 0:
        return None
    values = np.frombuffer(data, dtype=bits.dtype)
    starts = [start // bits.width for start in accumulate(lengths[:-1], initial=0)]
    largest: list[int] = np.maximum.reduceat(values & values.dtype.type(bits.magnitude), starts).tolist()
    return None if max(largest) >= bits.not_finite else [not item for item in largest]


def floats(data: bytes | memoryview, dtype: str, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Values as float32 for measurements; null for a dtype that is no plain float."""
    if dtype == "BF16":
        wide = np.frombuffer(data, "<u2").astype("<u4") << np.uint32(16)
        return wide.view("<f4").reshape(shape).astype(np.float32, copy=False)
    kind = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}.get(dtype)
    return None if kind is None else np.frombuffer(data, kind).reshape(shape).astype(np.float32, copy=False)
