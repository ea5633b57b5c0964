"""A module's factors out of their files: one read a tensor, all of them into one block of memory.

A map of each tensor would cost more than its bytes where there are many small ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
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

    def read(self, source: TensorSource, into: memoryview) -> None:
        """Fill `into` with a tensor's bytes.

        Raises:
            ComposeRefusedError: `FILE_TOO_SHORT`.
        """
        with self._descriptor(source.path) as file:
            done = 0
            while done < len(into):
                count = os.preadv(file, [into[done:]], source.offset + done)
                if count == 0:
                    raise too_short(source, os.fstat(file).st_size)
                done += count

    def close(self) -> None:
        """Close them all."""
        for file in self._descriptors.values():
            os.close(file)

    @contextmanager
    def _descriptor(self, path: Path) -> Iterator[int]:
        file = self._descriptors.get(path)
        if file is not None:
            yield file
            return
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


def read_pairs(files: Files, factors: Sequence[FactorSource], names: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
    """``(a, b)`` of every factor as stored; `names` say in a refusal whose they are.

    Raises:
        ComposeRefusedError: `DTYPE_UNSUPPORTED`, `TENSOR_LENGTH`, `FILE_TOO_SHORT` or `TENSOR_NOT_FINITE`.
    """
    sources = [source for factor in factors for source in (factor.a, factor.b)]
    dtypes = [float_dtype(source) for source in sources]
    starts = list(accumulate((_room(source) for source in sources), initial=0))
    block = torch.empty(starts[-1], dtype=torch.uint8)
    room = block.numpy().data
    tensors = []
    for source, dtype, start in zip(sources, dtypes, starts, strict=False):
        stop = start + source.length
        files.read(source, room[start:stop])
        tensors.append(block[start:stop].view(dtype).view(source.shape))
    full = sum(source.length for source in sources) == len(block)
    if not (full and len(set(dtypes)) == 1 and all_finite(block.view(dtypes[0]))):
        for tensor, name in zip(tensors, _tensor_names(names), strict=True):
            check_finite(tensor, name)
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _room(source: TensorSource) -> int:
    length = whole_length(source)
    return length + -length % _ALIGNMENT


def _tensor_names(names: Sequence[str]) -> Iterator[str]:
    return (f"{name}.{side}" for name in names for side in ("lora_A", "lora_B"))
