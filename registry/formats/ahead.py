"""Reading many adapter directories, in other processes where there are many: their checks are plain Python."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Final

from registry.errors import Problem, RefusedError, UnavailableError, UsageProblemError
from registry.formats.read import read_adapter
from registry.formats.readings import AdapterReading
from registry.formats.snapshot import ReadWeight
from schemas.base import BaseManifest

CHUNK: Final = 16
"""Directories a process is given at once."""

Refusal = RefusedError | UsageProblemError


@dataclass(frozen=True)
class _Reader:
    """What adapters are read with."""

    base: BaseManifest
    weight: ReadWeight

    def read(self, directory: Path) -> AdapterReading | Refusal:
        try:
            reading = read_adapter(directory, self.base, weight=self.weight)
            reading.manifest.canonical()
        except (RefusedError, UsageProblemError) as error:
            return error
        return reading


_READERS: Final[list[_Reader]] = []
"""In a reading process: the one it works with."""


def read_many(
    directories: Sequence[Path], base: BaseManifest, weight: ReadWeight, jobs: int = 1
) -> Generator[AdapterReading | Refusal, None, None]:
    """Read adapter directories in order, a few ahead; one that is refused gives its error and stops no other.

    The canonical bytes of each manifest are made as well. With more than one job `weight` goes to other processes. Of
    tensors in another arrangement (`AdapterReading.made`) nothing is left.

    Raises:
        UnavailableError: `READER_ENDED`, a process was killed.
    """
    reader = _Reader(base, weight)
    if jobs == 1:
        yield from map(reader.read, directories)
        return
    # "spawn": a fork would copy locks that other threads hold
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin, (reader,)) as pool:
        chunks = (directories[start : start + CHUNK] for start in range(0, len(directories), CHUNK))
        running = deque(pool.submit(_read_chunk, chunk) for chunk in islice(chunks, 3 * jobs))
        while running:
            try:
                done = running.popleft().result()
            except BrokenProcessPool as error:
                raise UnavailableError(_ended(error)) from error
            running.extend(pool.submit(_read_chunk, chunk) for chunk in islice(chunks, 1))
            yield from done


def _begin(reader: _Reader) -> None:
    _READERS.append(reader)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent says nothing to its pool, whose processes would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _read_chunk(directories: Sequence[Path]) -> list[AdapterReading | Refusal]:
    return [_READERS[0].read(directory) for directory in directories]


def _ended(error: BrokenProcessPool) -> Problem:
    return Problem(
        code="READER_ENDED",
        expected="processes that read to the end",
        observed=str(error),
        hint="Repeat the command, with fewer --jobs when memory was short; what is registered is not read twice.",
    )
