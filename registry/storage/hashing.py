"""Digests of a file somebody names: one read, both digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from registry.hashing import file_blocks, hash_blocks
from registry.storage.failures import source_failures
from schemas.digests import BlobDigests

Progress = Callable[[int], None]
"""Told how many bytes have just been taken in."""


def hash_file(path: Path, *, progress: Progress | None = None) -> BlobDigests:
    """Both digests of a file, read once in blocks of 4 MiB.

    Raises:
        UsageProblemError: `FILE_UNREADABLE`.
    """
    return hash_blocks(read_blocks(path), *reports(progress))


def read_blocks(path: Path) -> Iterator[memoryview]:
    """The file in blocks of 4 MiB, as views of buffers that take turns."""
    with source_failures(path), path.open("rb", buffering=0) as file:
        yield from file_blocks(file)


def reports(progress: Progress | None) -> tuple[Callable[[memoryview], object], ...]:
    """The sinks that tell `progress` about every block."""
    return () if progress is None else (lambda block: progress(len(block)),)
