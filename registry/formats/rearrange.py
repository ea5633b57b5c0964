"""Stored tensors in another arrangement: the same elements, moved byte for byte into a file of our packing.

Some producers store ``a [d_in, r]``, fuse projections or interleave heads. Nothing here computes: every element of a
written tensor is an element of a stored one, so what is written can be checked against what was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from registry.formats.directory import Directory, open_directory
from registry.formats.report import problem, refuse_all
from registry.formats.safetensors_file import TensorEntry
from registry.formats.safetensors_write import write_safetensors
from registry.formats.scan import file_header
from schemas.base import TensorRef
from schemas.digests import DTYPE_BYTES, tensor_digest

MADE: Final = "rearranged.safetensors"
Move = Callable[..., NDArray[Any]]


@dataclass(frozen=True)
class Arrangement:
    """A tensor to write: `move` puts the elements of `sources` (arrays of opaque elements in their stored shapes) into
    an array of `shape`."""

    name: str
    sources: tuple[TensorEntry, ...]
    shape: tuple[int, ...]
    move: Move

    @property
    def dtype(self) -> str:
        """That of the sources; they have one."""
        return self.sources[0].dtype

    def data(self, directory: Directory) -> bytes:
        """The bytes of the new tensor."""
        return self.move(*(_elements(directory, entry) for entry in self.sources)).tobytes()


def transposed(name: str, entry: TensorEntry) -> Arrangement:
    """``x [m, n]`` as ``[n, m]``."""
    return Arrangement(name, (entry,), entry.shape[::-1], np.transpose)


def reshaped(name: str, entry: TensorEntry, shape: tuple[int, ...]) -> Arrangement:
    """The same elements in the same order under another shape."""
    return Arrangement(name, (entry,), shape, lambda stored: stored.reshape(shape))


def rows(name: str, entry: TensorEntry, indices: Sequence[int]) -> Arrangement:
    """Some rows of a matrix, in the order of `indices`."""
    chosen = np.asarray(indices, dtype=np.intp)
    return Arrangement(name, (entry,), (len(chosen), *entry.shape[1:]), lambda stored: stored[chosen])


def joined(name: str, entries: tuple[TensorEntry, ...], axis: int) -> Arrangement:
    """Matrices beside each other along one axis."""
    shape = list(entries[0].shape)
    shape[axis] = sum(entry.shape[axis] for entry in entries)
    return Arrangement(name, entries, tuple(shape), lambda *stored: np.concatenate(stored, axis=axis))


def write_arranged(directory: Directory, scratch: Path, plan: Sequence[Arrangement]) -> dict[str, TensorEntry]:
    """Write a plan into `MADE` in the scratch folder, one tensor in memory at a time, and say where each tensor lies.

    Raises:
        RefusedError: `TENSOR_FILE_UNEXPECTED` when the directory has a file of that name, `FILE_CHANGED`.
        DigestMismatchError: `TENSOR_DIGEST_MISMATCH` when a stored tensor changes meanwhile.
        FileExistsError: the scratch folder was used before.
    """
    if MADE in directory.names:
        hint = "Rename the file; this name is kept for tensors in our arrangement."
        refuse_all([problem("TENSOR_FILE_UNEXPECTED", (MADE,), "another name", MADE, hint)])
    refs = {item.name: _ref(item, directory) for item in plan}
    sources = {refs[item.name]: item for item in plan}
    scratch.mkdir(mode=0o700, exist_ok=True)
    write_safetensors(scratch / MADE, refs, lambda ref: sources[ref].data(directory))
    return {entry.name: entry for entry in file_header(open_directory(scratch), MADE).tensors}


def _ref(item: Arrangement, directory: Directory) -> TensorRef:
    digest = tensor_digest(item.dtype, item.shape, item.data(directory))
    return TensorRef(tensor=digest, dtype=item.dtype, shape=item.shape)


def _elements(directory: Directory, entry: TensorEntry) -> NDArray[np.void]:
    """A stored tensor as opaque elements; their bytes are never read as numbers."""
    return np.frombuffer(stored_bytes(directory, entry), dtype=f"V{DTYPE_BYTES[entry.dtype]}").reshape(entry.shape)


def stored_bytes(directory: Directory, entry: TensorEntry) -> bytes:
    """The bytes of a tensor.

    Raises:
        RefusedError: `FILE_CHANGED` when the file became shorter than its header says.
    """
    with directory.open(entry.file) as stream:
        stream.seek(entry.offset)
        data = stream.read(entry.length)
    if len(data) != entry.length:
        hint = "Wait until nothing writes to the file, then read it again."
        refuse_all([problem("FILE_CHANGED", entry.place, f"{entry.length} bytes", f"{len(data)} bytes", hint)])
    return data
