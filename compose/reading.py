"""A module's factors out of their files: one read for what lies together, all of them into one block of memory.

A map of each tensor would cost more than its bytes where there are many small ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

import torch
from torch import Tensor

from compose.request import FactorSource, TensorSource
from compose.tensors import all_finite, check_finite, float_dtype, too_short, whole_length

KEPT: Final = 256
"""Files that stay open during a composition; what is beyond them is opened for every tensor."""
_ALIGNMENT: Final = 8


class Files:
    """The open files of one composition, for several threads."""

    def __init__(self) -> None:
        self._descriptors: dict[Path, int] = {}
        self._lock = Lock()

    def read(self, run: Sequence[TensorSource], into: memoryview) -> None:
        """Fill `into`, which may be longer, with the bytes of tensors that follow each other in one file.

        Raises:
            ComposeRefusedError: `FILE_TOO_SHORT`.
        """
        into = into[: run[-1].offset + run[-1].length - run[0].offset]
        file = self._descriptors.get(run[0].path)
        if file is not None:
            _fill(file, run, into)
            return
        with self._opened(run[0].path) as opened:
            _fill(opened, run, into)

    def close(self) -> None:
        """Close them all."""
        for file in self._descriptors.values():
            os.close(file)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        file = os.open(path, os.O_RDONLY)
        if self._keeps(path, file):
            yield file
            return
        try:
            yield file
        finally:
            os.close(file)

    def _keeps(self, path: Path, file: int) -> bool:
        with self._lock:
            kept = len(self._descriptors) < KEPT and path not in self._descriptors
            if kept:
                self._descriptors[path] = file
            return kept


def _fill(file: int, run: Sequence[TensorSource], into: memoryview) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(file, [into[done:]], run[0].offset + done)
        if count == 0:
            size = os.fstat(file).st_size
            raise too_short(next(source for source in run if source.offset + source.length > size), size)
        done += count


def read_pairs(files: Files, factors: Sequence[FactorSource], names: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
    """``(a, b)`` of every factor as stored; `names` say in a refusal whose they are.

    Raises:
        ComposeRefusedError: `DTYPE_UNSUPPORTED`, `TENSOR_LENGTH`, `FILE_TOO_SHORT` or `TENSOR_NOT_FINITE`.
    """
    sources = [source for factor in factors for source in (factor.a, factor.b)]
    dtypes = [float_dtype(source) for source in sources]
    alike = len(set(dtypes)) == 1
    rooms = [_room(source, dtypes[0].itemsize if alike else _ALIGNMENT) for source in sources]
    block = torch.empty(sum(rooms), dtype=torch.uint8)
    _read(files, sources, rooms, block.numpy().data)
    if alike:
        whole = block.view(dtypes[0])
        parts = torch.split_with_sizes(whole, [room // whole.itemsize for room in rooms])
    else:
        places = torch.split_with_sizes(block, rooms)
        parts = tuple(
            place[: source.length].view(dtype) for place, source, dtype in zip(places, sources, dtypes, strict=True)
        )
    tensors = [part.view(source.shape) for part, source in zip(parts, sources, strict=True)]
    if not (alike and all_finite(whole)):
        for tensor, name in zip(tensors, _tensor_names(names), strict=True):
            check_finite(tensor, name)
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _room(source: TensorSource, alignment: int) -> int:
    length = whole_length(source)
    return length + -length % alignment


def _read(files: Files, sources: Sequence[TensorSource], rooms: Sequence[int], memory: memoryview) -> None:
    """One reading for tensors that follow each other in a file as they will in memory."""
    first = start = stop = 0
    for number, (source, room) in enumerate(zip(sources, rooms, strict=True)):
        before = sources[number - 1]
        if number and not (source.offset == before.offset + rooms[number - 1] and source.path == before.path):
            files.read(sources[first:number], memory[start:stop])
            first, start = number, stop
        stop += room
    files.read(sources[first:], memory[start:stop])


def _tensor_names(names: Sequence[str]) -> Iterator[str]:
    return (f"{name}.{side}" for name in names for side in ("lora_A", "lora_B"))
