"""Deterministic safetensors output: the layout is fixed before work, so modules may arrive in any order.

Bytes go to a file beside the target, which takes the target's name only when everything is written and flushed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Final

from compose.request import Role, WrittenTensor
from schemas.base import TensorRef
from schemas.digests import DTYPE_BYTES, tensor_digest

_ALIGNMENT: Final = 8


@dataclass(frozen=True)
class Slot:
    """The place of one tensor in the file: `offset` absolute, in bytes."""

    module: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0

    @property
    def name(self) -> str:
        """The tensor's key in the file."""
        return self.module if self.role == "full" else f"{self.module}.{self.role}"

    @property
    def length(self) -> int:
        """Bytes."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Layout:
    """Header and slots: widest dtype first, then by name, as safetensors itself writes, so every tensor is aligned."""

    header: bytes
    slots: Mapping[tuple[str, Role], Slot]
    size: int


def lay_out(slots: list[Slot]) -> Layout:
    """Fix the offset of every tensor."""
    ordered = sorted(slots, key=lambda slot: (-DTYPE_BYTES[slot.dtype], slot.name))
    entries, start = {}, 0
    for slot in ordered:
        end = start + slot.length
        entries[slot.name] = {"dtype": slot.dtype, "shape": list(slot.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    placed: dict[tuple[str, Role], Slot] = {}
    offset = len(header)
    for slot in ordered:
        placed[slot.module, slot.role] = replace(slot, offset=offset)
        offset += slot.length
    return Layout(header, placed, offset)


class TensorFile:
    """An open output file; `write` may be called from several threads, each slot once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, slot: Slot, data: memoryview) -> WrittenTensor:
        """Write one tensor into its slot and digest it."""
        self.write_at(slot.offset, data)
        ref = TensorRef(tensor=tensor_digest(slot.dtype, slot.shape, data), dtype=slot.dtype, shape=slot.shape)
        return WrittenTensor(slot.module, slot.role, ref, slot.offset, slot.length)

    def flush(self) -> None:
        """Wait until what was written is on the disk; during the work, so that the disk works beside the processors."""
        os.fdatasync(self._descriptor)

    def write_at(self, offset: int, data: memoryview) -> None:
        """Write all bytes at an absolute offset."""
        while data:
            written = os.pwrite(self._descriptor, data, offset)
            data, offset = data[written:], offset + written


@contextmanager
def new_file(target: Path, layout: Layout) -> Iterator[TensorFile]:
    """An output file that appears under `target` when the block ends well, and leaves nothing when it does not.

    The name beside the target is always the same, so that a run after a killed one overwrites what that one left.
    """
    beside = target.with_name(target.name + ".partial")
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        try:
            os.truncate(descriptor, layout.size)
            file = TensorFile(descriptor)
            file.write_at(0, memoryview(layout.header))
            yield file
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
