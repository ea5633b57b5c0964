"""Bounded reading of a GGUF header (GGUF specification, versions 2 and 3): metadata, tensor entries, where data lies.

Layout, little-endian: ``magic | version u32 | tensors u64 | keys u64 | metadata | tensor entries | padding | data``.
Only scalars and strings of the metadata are kept; arrays, such as a vocabulary, are hashed while they pass by. Every
length is checked against what is left before it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import BinaryIO, Final

from blake3 import blake3

from registry.errors import RefusedError
from registry.formats.gguf.blocks import LAYOUTS, NAMES
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import LONGEST_NAME, Header, TensorEntry
from schemas.canonical import SAFE_INTEGER
from schemas.digests import PREFIX
from schemas.errors import Problem

MAGIC: Final = b"GGUF"
LARGEST_HEADER: Final = 64 * 2**20
MOST_KEYS: Final = 4096
MOST_TENSORS: Final = 65536
MOST_DIMENSIONS: Final = 4
LARGEST_ALIGNMENT: Final = 2**20
_VERSIONS: Final = (2, 3)
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING: Final = 8
_ARRAY: Final = 9
_REPAIR: Final = "The file is damaged or no GGUF file of version 2 or 3: download or convert it again."


@dataclass(frozen=True)
class Array:
    """A metadata array, of which only the length is kept."""

    count: int


Value = bool | int | float | str | Array


@dataclass(frozen=True)
class GgufHeader:
    """What stands before the data: metadata by key, a digest of each value as stored, and the tensors as entries."""

    metadata: dict[str, Value]
    digests: dict[str, str]
    header: Header


def read_gguf_header(stream: BinaryIO, size: int, name: str) -> GgufHeader:
    """Read and validate the header of a file of `size` bytes.

    Raises:
        RefusedError: `HEADER_INVALID`, `HEADER_TRUNCATED`, `HEADER_TOO_LARGE`, `DTYPE_UNKNOWN`, `SHAPE_INVALID`,
            `OFFSETS_GAP`, `OFFSETS_OVERLAP`, `FILE_TRUNCATED`, `TRAILING_BYTES`.
    """
    cursor = _Cursor(stream, size, name)
    if cursor.take(4) != MAGIC:
        raise cursor.refused("HEADER_INVALID", "a file that begins with GGUF", "other bytes")
    version = cursor.number("<I")
    if version not in _VERSIONS:
        raise cursor.refused("HEADER_INVALID", "version 2 or 3, little-endian", shown(version))
    tensors, keys = cursor.count("tensors", MOST_TENSORS), cursor.count("keys", MOST_KEYS)
    metadata, digests = _metadata(cursor, keys)
    entries = [_entry(cursor) for _ in range(tensors)]
    alignment = _alignment(cursor, metadata)
    start = cursor.position + -cursor.position % alignment
    placed = sorted((_placed(entry, start) for entry in entries), key=lambda entry: entry.offset)
    refuse_all(_place_problems(placed, start, size, alignment, name))
    return GgufHeader(metadata, digests, Header(start, tuple(placed)))


class _Cursor:
    """A position in the header that never passes its bound."""

    def __init__(self, stream: BinaryIO, size: int, name: str) -> None:
        self.position = 0
        self._stream = stream
        self._size = size
        self._name = name
        self._digest = blake3()

    def take(self, length: int) -> bytes:
        """The next bytes."""
        end = self.position + length
        if end > LARGEST_HEADER:
            raise self.refused("HEADER_TOO_LARGE", f"a header of at most {LARGEST_HEADER} bytes", "more")
        data = self._stream.read(length) if end <= self._size else b""
        if len(data) < length:
            raise self.refused("HEADER_TRUNCATED", f"{length} bytes at {self.position}", f"a file of {self._size}")
        self.position = end
        self._digest.update(data)
        return data

    def number(self, form: str) -> int | float | bool:
        """The next number of a fixed width."""
        value: int | float | bool = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def length(self) -> int:
        """The next unsigned 64-bit number."""
        return int.from_bytes(self.take(8), "little")

    def count(self, what: str, most: int) -> int:
        """The next unsigned 64-bit number, bounded."""
        found = self.length()
        if found > most:
            raise self.refused("HEADER_TOO_LARGE", f"at most {most} {what}", str(found))
        return found

    def text(self) -> str:
        """The next string."""
        data = self.take(self.length())
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.refused("HEADER_INVALID", "text in UTF-8", shown(data[:32])) from error

    def name(self) -> str:
        """The next string, which is a key or a tensor's name."""
        found = self.text()
        if not found or len(found) > LONGEST_NAME or not found.isprintable():
            raise self.refused("HEADER_INVALID", f"a printable name of 1-{LONGEST_NAME} characters", shown(found))
        return found

    def digest_from_here(self) -> None:
        """Forget what was hashed so far."""
        self._digest = blake3()

    def digest(self) -> str:
        """The digest of what was taken since."""
        return PREFIX + self._digest.hexdigest()

    def refused(self, code: str, expected: str, observed: str, *path: str) -> RefusedError:
        """A problem of this file."""
        return RefusedError(problem(code, (self._name, *path), expected, observed, _REPAIR))


def _metadata(cursor: _Cursor, count: int) -> tuple[dict[str, Value], dict[str, str]]:
    metadata: dict[str, Value] = {}
    digests: dict[str, str] = {}
    for _ in range(count):
        key = cursor.name()
        if key in metadata:
            raise cursor.refused("HEADER_INVALID", "each key once", "twice", key)
        cursor.digest_from_here()
        metadata[key] = _value(cursor, int(cursor.number("<I")), key)
        digests[key] = cursor.digest()
    return metadata, digests


def _value(cursor: _Cursor, kind: int, key: str) -> Value:
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind == _STRING:
        return cursor.text()
    if kind != _ARRAY:
        raise cursor.refused("HEADER_INVALID", "a value type of the specification", str(kind), key)
    item, count = int(cursor.number("<I")), cursor.length()
    if item in _SCALARS:
        cursor.take(count * struct.calcsize(_SCALARS[item]))
    elif item == _STRING:
        for _ in range(count):
            cursor.take(cursor.length())
    else:
        raise cursor.refused("HEADER_INVALID", "an array of numbers or strings", str(item), key)
    return Array(count)


def _entry(cursor: _Cursor) -> TensorEntry:
    """A tensor's entry, its offset still counted from the start of the data."""
    name = cursor.name()
    dimensions = int(cursor.number("<I"))
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise cursor.refused("SHAPE_INVALID", f"1 to {MOST_DIMENSIONS} dimensions", str(dimensions), name)
    # The first stored dimension is the one whose elements lie side by side.
    shape = tuple(cursor.length() for _ in range(dimensions))[::-1]
    number, offset = int(cursor.number("<I")), cursor.length()
    if number not in NAMES:
        raise cursor.refused("DTYPE_UNKNOWN", f"one of {', '.join(LAYOUTS)}", f"type {number}", name)
    layout = LAYOUTS[NAMES[number]]
    if shape[-1] % layout.elements or 0 in shape or prod(shape) > SAFE_INTEGER:
        expected = f"rows of whole blocks of {layout.elements}"
        raise cursor.refused("SHAPE_INVALID", expected, shown(list(shape)), name)
    return TensorEntry(name, NAMES[number], shape, offset, prod(shape) // layout.elements * layout.size)


def _alignment(cursor: _Cursor, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", 32)
    if type(value) is not int or not 1 <= value <= LARGEST_ALIGNMENT or value & (value - 1):
        raise cursor.refused("HEADER_INVALID", "a power of two", shown(value), "general.alignment")
    return value


def _placed(entry: TensorEntry, start: int) -> TensorEntry:
    return TensorEntry(entry.name, entry.dtype, entry.shape, start + entry.offset, entry.length)


def _place_problems(entries: list[TensorEntry], start: int, size: int, alignment: int, name: str) -> Iterator[Problem]:
    """Tensors lie one after the other, each on the next aligned byte, names once, and nothing follows but padding."""
    end = start
    seen: set[str] = set()
    for entry in entries:
        expected = end + -end % alignment
        if entry.name in seen:
            yield problem("HEADER_INVALID", (name, entry.name), "each tensor once", "twice", _REPAIR)
        seen.add(entry.name)
        if entry.offset != expected:
            code = "OFFSETS_OVERLAP" if entry.offset < end else "OFFSETS_GAP"
            yield problem(code, (name, entry.name), f"data from byte {expected}", f"byte {entry.offset}", _REPAIR)
        end = max(end, entry.offset + entry.length)
    if end > size:
        yield problem("FILE_TRUNCATED", (name,), f"a file of {end} bytes", f"{size} bytes", _REPAIR)
    elif size - end >= alignment:
        yield problem("TRAILING_BYTES", (name,), f"a file of {end} bytes", f"{size} bytes", _REPAIR)
