"""Hashing and storing a 512 MB file against `hashlib` SHA-256 alone over the same bytes, warm cache.

Targets: hashing at most 1.3 times the peer, peak memory under 300 MiB, on two cores. Storing also writes and syncs the
bytes, so its peer is SHA-256 with a bare copy and fsync.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from registry.storage import FolderStore, hash_file
from tests.benchmarks.measure import in_turns, peak_mib

BLOCK = 4 * 2**20
BLOCKS = 128
PAIRS = 5


def run() -> Iterator[str]:
    """Two lines: hashing, storing."""
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as folder:
        file, root = Path(folder, "base.safetensors"), Path(folder, "store")
        write_random(file)
        hashing = in_turns(partial(sha256_alone, file), partial(hash_file, file), PAIRS)
        yield hashing.line("ingest hash 512 MiB", peak_mib(hash_file, file))
        storing = in_turns(partial(sha256_and_copy, file, Path(folder, "copy")), partial(put, root, file), PAIRS)
        yield storing.line("ingest put 512 MiB", peak_mib(put, root, file))


def write_random(file: Path) -> None:
    """Random bytes from a fixed seed."""
    numbers = random.Random(0)
    with file.open("wb") as target:
        for _ in range(BLOCKS):
            target.write(numbers.randbytes(BLOCK))


def sha256_alone(file: Path) -> str:
    """What `hashlib` does by itself."""
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def sha256_and_copy(file: Path, copy: Path) -> str:
    """The same read, each block also written, then one fsync."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with file.open("rb", buffering=0) as source, copy.open("wb", buffering=0) as target:
        while count := source.readinto(buffer):
            digest.update(buffer[:count])
            target.write(buffer[:count])
        os.fsync(target.fileno())
    copy.unlink()
    return digest.hexdigest()


def put(root: Path, file: Path) -> None:
    """Store and remove again, so that each run starts alike."""
    store = FolderStore(root)
    store.delete(store.put_file(file).digest)
