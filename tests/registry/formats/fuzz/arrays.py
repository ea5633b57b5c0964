"""Whole safetensors files as NumPy arrays, each byte in one of them, every value finite."""

from __future__ import annotations

import json
import re
from math import isfinite, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
TYPES: Final = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
}


class RejectError(Exception):
    """The directory says nothing, or two things."""


class BeyondError(Exception):
    """The directory uses a setting this reader does not know."""


def need(condition: object) -> None:
    """Refuse unless it holds."""
    if not condition:
        raise RejectError


def number(value: Any) -> float:
    """A JSON number that is no truth value."""
    need(type(value) in (int, float) and isfinite(value))
    return float(value)


def tensors(content: bytes) -> dict[str, Array]:
    """All tensors of a safetensors file; every byte belongs to exactly one."""
    need(len(content) >= 8)
    length = int.from_bytes(content[:8], "little")
    need(length <= len(content) - 8)
    header = loads(content[8 : 8 + length])
    need(isinstance(header, dict))
    data, spans, found = content[8 + length :], [], {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        need(isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"})
        start, end = entry["data_offsets"]
        spans.append((start, end))
        found[name] = _array(entry["dtype"], entry["shape"], data[start:end])
    position = 0
    for start, end in sorted(spans):
        need(start == position)
        position = end
    need(position == len(data))
    return found


def metadata(content: bytes) -> dict[str, str]:
    """What the header says beside the tensors."""
    length = int.from_bytes(content[:8], "little")
    return dict(loads(content[8 : 8 + length]).get("__metadata__") or {})


def loads(content: bytes | str) -> Any:
    """JSON, each key of an object once."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len({key for key, _ in pairs}) == len(pairs))
        return dict(pairs)

    try:
        return json.loads(content, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise RejectError from error


def _array(dtype: str, shape: list[int], data: bytes) -> Array:
    if dtype == "BF16":
        values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        need(dtype in TYPES)
        values = np.frombuffer(data, TYPES[dtype])
    need(prod(shape) == values.size)
    result: Array = values.astype(np.float64).reshape(shape)
    need(np.isfinite(result).all())
    return result


def product(a: Array, b: Array) -> Array:
    """b [out, r] times a [r, in]."""
    need(a.ndim == b.ndim == 2 and a.shape[0] == b.shape[1] > 0)
    return b @ a


def sort(arrays: dict[str, Array], grammar: str) -> dict[str, dict[str, Array]]:
    """Arrays by module and the rest of their name; every name must be of the grammar."""
    found: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        match = re.fullmatch(grammar, name)
        need(match)
        assert match is not None
        roles = found.setdefault(match["module"], {})
        need(match["role"] not in roles)
        roles[match["role"]] = array
    return found
