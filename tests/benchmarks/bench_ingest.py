"""A base of 512 MiB through `add base`, and hashing and storing a file of that size, against `hashlib` SHA-256 alone.

Targets: at most 1.3 times SHA-256 over the same bytes (warm cache, in turns), peak memory under 300 MiB, on two cores.
`add base` hashes the file twice over and every tensor, and writes its rows. Storing also writes and syncs the bytes, so
its peer is SHA-256 with a bare copy and fsync.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from registry.db import Database, migrate
from registry.service import add
from registry.service.context import Context
from registry.storage import FolderStore, hash_file
from registry.wiring import LazyComposer
from tests.benchmarks.measure import in_turns, load, peak_mib
from tests.support import tiny

BLOCK = 4 * 2**20
BLOCKS = 128
PAIRS = 5
TENSORS = 128
SIDE = 1_024


def run() -> Iterator[str]:
    """Three lines: `add base`, hashing, storing."""
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as folder:
        home = Path(folder)
        base = tiny.write_base(home / "base", tensors=large_tensors())
        url = f"sqlite:///{home / 'registry.db'}"
        migrate.upgrade(url)
        ours = partial(add_base, url, base, home / "registry")
        added = in_turns(partial(sha256_alone, base / "model.safetensors"), ours, PAIRS)
        yield f"{added.line('ingest add base 512 MiB', peak_mib(add_base, url, base, home / 'registry'))}, {load()}"
        file, root = home / "file", home / "store"
        write_random(file)
        hashing = in_turns(partial(sha256_alone, file), partial(hash_file, file), PAIRS)
        yield f"{hashing.line('ingest hash 512 MiB', peak_mib(hash_file, file))}, {load()}"
        storing = in_turns(partial(sha256_and_copy, file, home / "copy"), partial(put, root, file), PAIRS)
        yield f"{storing.line('ingest put 512 MiB', peak_mib(put, root, file))}, {load()}"


def large_tensors() -> dict[str, tiny.Array]:
    """A small base's, and 512 MiB beside them."""
    draw = np.random.default_rng(0)
    extra = {f"extra.{n}.weight": draw.random((SIDE, SIDE), dtype=np.float32) for n in range(TENSORS)}
    return tiny.base_tensors() | extra


def add_base(url: str, directory: Path, store: Path) -> None:
    """Register a base; in a process of its own its peak memory is this alone."""
    with Database(url) as database:
        add.add_base(Context(database, FolderStore(store), LazyComposer(1, 2**30), "bench"), directory, "large")


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
