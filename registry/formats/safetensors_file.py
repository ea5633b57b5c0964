"""Strict safetensors headers: everything is checked before a byte of tensor data is read.

Layout: ``u64 LE header length | JSON header | data``. Each tensor's ``data_offsets`` count from the start of the data;
together they must cover it without gap, overlap or rest. The header length is bounded before it is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import BinaryIO, Final

from registry.errors import RefusedError
from registry.formats.directory import json_object, pickle_problem
from registry.formats.remembered import Remembered
from registry.formats.report import MOST_PROBLEMS, located, problem, refuse_all, shown
from schemas.canonical import SAFE_INTEGER, JsonObject, JsonValue
from schemas.digests import DTYPE_BYTES
from schemas.errors import Path, Problem

LARGEST_HEADER: Final = 100_000_000
"""The bound of the safetensors library itself."""
MOST_DIMENSIONS: Final = 32
LONGEST_NAME: Final = 1024
PREFIX_BYTES: Final = 8
_PICKLE_START: Final = re.compile(rb"PK\x03\x04|\x80[\x02-\x05]")
_REPAIR: Final = "Save the file again with the safetensors library."


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as the header declares it; `offset` and `length` in bytes, absolute in the file called `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int
    file: str = ""

    def __hash__(self) -> int:
        """By what tells tensors apart already: entries are keys a dozen times while an adapter is read."""
        return hash((self.name, self.file))

    @property
    def place(self) -> Path:
        """Where a problem with this tensor is."""
        return (self.file, self.name)


@dataclass(frozen=True)
class Header:
    """A validated header: `data_start` bytes, then the tensors, in the order in which their bytes lie.

    `metadata` is what the producer wrote beside them.
    """

    data_start: int
    tensors: tuple[TensorEntry, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Where the data ends, and with it the file."""
        return max((tensor.offset + tensor.length for tensor in self.tensors), default=self.data_start)


_REMEMBERED: Final = 2**18
"""Bytes of a header that is kept in case the next file has the same."""
_HEADERS: Final = Remembered[tuple[bytes, int | None, str], Header]()


def read_header(stream: BinaryIO, size: int | None, name: str, *, largest: int = LARGEST_HEADER) -> Header:
    """Read and validate the header of a file of `size` bytes, leaving the stream at the first tensor.

    Without a size, as of a file that is still arriving, the end of its data is left to `check_end`.

    Raises:
        RefusedError: `HEADER_TRUNCATED`, `HEADER_TOO_LARGE`, `PICKLE_REFUSED`, `HEADER_INVALID`, `DTYPE_UNKNOWN`,
            `SHAPE_INVALID`, `OFFSETS_INVALID`, `EXTENT_MISMATCH`, `OFFSETS_OVERLAP`, `OFFSETS_GAP`, `FILE_TRUNCATED`,
            `TRAILING_BYTES`, `JSON_*`; all that is wrong with the tensors at once.
    """
    start = stream.read(PREFIX_BYTES)
    length = check_start(start, size, name, largest)
    data = stream.read(length)
    if not data.startswith(b"{"):
        raise RefusedError(_no_object(start, data, name))
    known = _HEADERS.get((data, size, name))
    if known is not None:
        return known
    with located(name):
        document = json_object(data)
    header = _validated(document, PREFIX_BYTES + length, size, name)
    return _HEADERS.put((data, size, name), header) if length <= _REMEMBERED else header


def check_start(start: bytes, size: int | None, name: str, largest: int = LARGEST_HEADER) -> int:
    """The length of the header that the first bytes of a file promise; a ninth byte is looked at when it is there.

    Raises:
        RefusedError: `HEADER_TRUNCATED`, `HEADER_TOO_LARGE`, `PICKLE_REFUSED`, `HEADER_INVALID`.
    """
    prefix, begun = start[:PREFIX_BYTES], start[PREFIX_BYTES:]
    length = int.from_bytes(prefix, "little")
    room = largest if size is None else min(largest, size - PREFIX_BYTES)
    fits = len(prefix) == PREFIX_BYTES and length <= room
    if not fits and _PICKLE_START.match(prefix):
        raise RefusedError(pickle_problem(name))
    if len(prefix) < PREFIX_BYTES:
        raise RefusedError(_file(name, "HEADER_TRUNCATED", "8 bytes of header length", f"{len(prefix)} bytes"))
    if length > largest:
        raise RefusedError(_file(name, "HEADER_TOO_LARGE", f"a header of at most {largest} bytes", str(length)))
    if not fits:
        raise RefusedError(_file(name, "HEADER_TRUNCATED", f"a header of {length} bytes", f"a file of {size} bytes"))
    if begun and not begun.startswith(b"{"):
        raise RefusedError(_no_object(prefix, begun, name))
    return length


def check_end(header: Header, size: int, name: str) -> None:
    """Compare the end of the data with the size of the file.

    Raises:
        RefusedError: `FILE_TRUNCATED`, `TRAILING_BYTES`.
    """
    refuse_all(_end_problems(header.end, size, name))


def _validated(document: JsonObject, data_start: int, size: int | None, name: str) -> Header:
    problems: list[Problem] = []
    tensors: list[TensorEntry] = []
    for key, value in document.items():
        if len(problems) >= MOST_PROBLEMS:
            break
        if key == "__metadata__":
            problems += _metadata_problems(value, name)
            continue
        found = _entry(key, value, data_start, name)
        if isinstance(found, TensorEntry):
            tensors.append(found)
        else:
            problems.append(found)
    refuse_all(problems)
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.length))
    refuse_all(_coverage_problems(tensors, data_start, size, name))
    return Header(data_start, tuple(tensors), _metadata(document.get("__metadata__")))


def _metadata_problems(value: JsonValue, name: str) -> list[Problem]:
    # MLX writes null where it has nothing to say, and the safetensors library reads that.
    if value is None or (isinstance(value, dict) and all(isinstance(item, str) for item in value.values())):
        return []
    path = (name, "__metadata__")
    return [problem("HEADER_INVALID", path, "an object of strings", shown(value), _REPAIR)]


def _metadata(value: JsonValue) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {key: item for key, item in pairs if isinstance(item, str)}


def _entry(key: str, value: JsonValue, data_start: int, name: str) -> TensorEntry | Problem:
    path = (name, key)
    if not key or len(key) > LONGEST_NAME or not key.isprintable():
        return problem("HEADER_INVALID", path, f"a printable name of 1-{LONGEST_NAME} characters", shown(key), _REPAIR)
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        return problem("HEADER_INVALID", path, "dtype, shape and data_offsets", shown(value), _REPAIR)
    dtype, shape, offsets = value["dtype"], _counts(value["shape"]), _counts(value["data_offsets"])
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        return problem("DTYPE_UNKNOWN", path, f"one of {', '.join(DTYPE_BYTES)}", shown(dtype), _REPAIR)
    if shape is None or len(shape) > MOST_DIMENSIONS:
        return problem("SHAPE_INVALID", path, f"up to {MOST_DIMENSIONS} counts", shown(value["shape"]), _REPAIR)
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        observed = shown(value["data_offsets"])
        return problem("OFFSETS_INVALID", path, "two byte offsets, start before end", observed, _REPAIR)
    length = offsets[1] - offsets[0]
    if prod(shape) * DTYPE_BYTES[dtype] != length:
        expected = f"{prod(shape) * DTYPE_BYTES[dtype]} bytes for {dtype} {shown(list(shape))}"
        return problem("EXTENT_MISMATCH", path, expected, f"{length} bytes", _REPAIR)
    return TensorEntry(key, dtype, shape, data_start + offsets[0], length, name)


def _counts(value: JsonValue) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    counts = [item for item in islice(value, MOST_DIMENSIONS + 1) if type(item) is int and 0 <= item <= SAFE_INTEGER]
    return tuple(counts) if len(counts) == len(value) else None


def _coverage_problems(tensors: list[TensorEntry], data_start: int, size: int | None, name: str) -> list[Problem]:
    problems: list[Problem] = []
    end = data_start
    for tensor in tensors:
        if tensor.offset != end:
            code = "OFFSETS_OVERLAP" if tensor.offset < end else "OFFSETS_GAP"
            expected, observed = f"data from byte {end}", f"byte {tensor.offset}"
            problems.append(problem(code, (name, tensor.name), expected, observed, _REPAIR))
        end = max(end, tensor.offset + tensor.length)
    if size is not None and (end > size or not problems):
        problems += _end_problems(end, size, name)
    return problems


def _end_problems(end: int, size: int, name: str) -> list[Problem]:
    if end == size:
        return []
    code = "FILE_TRUNCATED" if end > size else "TRAILING_BYTES"
    return [_file(name, code, f"a file of {end} bytes", f"{size} bytes")]


def _no_object(start: bytes, data: bytes, name: str) -> Problem:
    code = "PICKLE_REFUSED" if _PICKLE_START.match(start) else "HEADER_INVALID"
    return _file(name, code, "a JSON object after the length", shown(data[:16]))


def _file(name: str, code: str, expected: str, observed: str) -> Problem:
    return problem(code, (name,), expected, observed, "The file is damaged or incomplete: copy or save it again.")
