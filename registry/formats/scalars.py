"""Single numbers that a producer stores as tensors, such as kohya's alpha."""

from __future__ import annotations

from math import isfinite
from typing import Final

import numpy as np

from registry.errors import RefusedError
from registry.formats.directory import Directory
from registry.formats.rearrange import stored_bytes
from registry.formats.report import problem, shown
from registry.formats.safetensors_file import TensorEntry

_TYPES: Final = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U8": "<u1",
}  # fmt: skip
_HINT: Final = "Save the adapter again; a scale is one finite number."


def read_scalar(directory: Directory, entry: TensorEntry) -> float:
    """The value of a tensor that must hold one finite number.

    Raises:
        RefusedError: `SCALAR_INVALID`.
    """
    code = _TYPES.get(entry.dtype)
    if code is None or any(size != 1 for size in entry.shape):
        observed = f"{entry.dtype} {shown(list(entry.shape))}"
        raise RefusedError(problem("SCALAR_INVALID", entry.place, "one number", observed, _HINT))
    values = np.frombuffer(stored_bytes(directory, entry), dtype=code)
    if entry.dtype == "BF16":
        # bfloat16 is the upper half of a float32.
        values = (values.astype("<u4") << 16).view("<f4")
    value = float(values[0])
    if not isfinite(value):
        raise RefusedError(problem("SCALAR_INVALID", entry.place, "a finite number", shown(value), _HINT))
    return value
