"""Reading many adapter directories, in other processes where there are many: their checks are plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeAlias

from registry.errors import Problem, UnavailableError
from registry.formats.reader import START, Answers, Asked, Reader, Refusal, Shelf
from registry.formats.readings import AdapterReading
from registry.formats.snapshot import ReadWeight
from schemas.base import BaseManifest

CHUNK: Final = 16
"""Directories a process is given at once."""
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""As many processes read as there are cores: threads of their own would only be in each other's way."""

_Line: TypeAlias = "Connection[Asked, Answers]"


def read_many(
    directories: Sequence[Path], base: BaseManifest, weight: ReadWeight, jobs: int = 1, shelf: Shelf | None = None
) -> Generator[AdapterReading | Refusal, None, None]:
    """Read adapter directories in order, a few ahead; one that is refused gives its error and stops no other.

    With more than one job `weight` and `shelf` go to other processes; until the first of them has started, this one
    reads. Of tensors in another arrangement nothing is left. The small files of an adapter are on the shelf when it is
    given.

    Raises:
        UnavailableError: `READER_ENDED`, a process was killed.
    """
    reader = Reader(base, weight, shelf)
    rest = iter(directories)
    chunks = iter(lambda: tuple(islice(rest, CHUNK)), ())
    if jobs == 1 or len(directories) <= CHUNK:
        yield from chain.from_iterable(map(reader.read_all, chunks))
        return
    with ExitStack() as stack:
        lines = stack.enter_context(_processes(jobs))
        pool = stack.enter_context(ThreadPoolExecutor(jobs, "reader"))
        stack.callback(pool.shutdown, cancel_futures=True)
        idle: SimpleQueue[_Line] = SimpleQueue()
        for line in lines:
            pool.submit(_begin, line, reader, idle)
        while idle.empty() and (directory := next(rest, None)) is not None:
            yield from reader.read_all((directory,))
        asked = (pool.submit(_answered, idle, chunk) for chunk in chunks)
        running = deque(islice(asked, 3 * jobs))
        try:
            while running:
                done = running.popleft().result()
                running.extend(islice(asked, 1))
                yield from done
        except (EOFError, ConnectionError) as error:
            raise UnavailableError(_ended(error)) from error


@contextmanager
def _processes(jobs: int) -> Iterator[list[_Line]]:
    """Lines to reading processes, which end when these are closed."""
    pipes = [Pipe() for _ in range(jobs)]
    numbers = [theirs.fileno() for _, theirs in pipes]
    command = [sys.executable, "-P", "-c", START, *map(str, numbers)]
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # our own interpreter and module, and numbers we just drew
    with subprocess.Popen(command, pass_fds=numbers, env=environment, stdin=subprocess.DEVNULL):  # noqa: S603
        for _, theirs in pipes:
            theirs.close()
        try:
            yield [ours for ours, _ in pipes]
        finally:
            for ours, _ in pipes:
                ours.close()


def _begin(line: _Line, reader: Reader, idle: SimpleQueue[_Line]) -> None:
    try:
        line.send(reader)
        line.recv()
    finally:
        idle.put(line)


def _answered(idle: SimpleQueue[_Line], chunk: Sequence[Path]) -> Answers:
    line = idle.get()
    try:
        line.send(chunk)
        return line.recv()
    finally:
        idle.put(line)


def _ended(error: Exception) -> Problem:
    return Problem(
        code="READER_ENDED",
        expected="processes that read to the end",
        observed=str(error) or type(error).__name__,
        hint="Repeat the command, with fewer --jobs when memory was short; what is registered is not read twice.",
    )
