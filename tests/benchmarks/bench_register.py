"""Registering adapters and a base through the service against the same work done bare, in turns.

Targets: 2,000 adapters of 100 kB at most 1.5 times the peer; a base of 512 MiB at most 1.3 times SHA-256 alone, in less
than 300 MiB. The peer of a registration hashes files and tensors, stages, syncs and moves both files, and commits rows
of the same sizes to a bare table in one synced transaction.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from blake3 import blake3

from registry.db import Database, migrate
from registry.service import add
from registry.service.context import Context
from registry.storage import FolderStore
from registry.wiring import LazyComposer
from tests.benchmarks.bench_ingest import sha256_alone
from tests.benchmarks.measure import Pairs, in_turns, own_peak_mib, peak_mib
from tests.support import tiny
from tests.support.databases import PostgresServer

ADAPTERS = 2_000
ROUNDS = 10
RANK = 390
"""Four modules of this rank make a file of 100 kB."""
ROW_BYTES = (3_000, 700, 900, *[250] * 15)
"""The rows of one registration: manifest, statement, audit event, and the small ones."""
TENSORS = 128
SIDE = 1_024
PAIRS = 5


def run() -> Iterator[str]:
    """Three lines: adapters on both databases, a base."""
    with tempfile.TemporaryDirectory(prefix="bench-register-") as folder:
        home = Path(folder)
        directories = [tiny.write_adapter(home / "adapters" / str(n), n, rank=RANK) for n in range(ADAPTERS)]
        base = tiny.write_base(home / "base")
        sqlite = f"sqlite:///{home / 'registry.db'}"
        yield _told("sqlite", _registrations(sqlite, base, directories, home / "sqlite"))
        server = PostgresServer()
        try:
            url = server.url(server.create())
            yield _told("postgresql without sync", _registrations(url, base, directories, home / "postgresql"))
        finally:
            server.stop()
        large = tiny.write_base(home / "large", tensors=_large_tensors())
        weights = large / "model.safetensors"
        with _context(sqlite, home / "sqlite") as context:
            pairs = in_turns(partial(sha256_alone, weights), partial(add.add_base, context, large, "large"), PAIRS)
        yield pairs.line("register base 512 MiB", peak_mib(add_base, sqlite, large, home / "sqlite"))


def add_base(url: str, directory: Path, store: Path) -> None:
    """Register a base; in a process of its own its peak memory is this alone."""
    with _context(url, store) as context:
        add.add_base(context, directory, "large")


def _told(where: str, pairs: Pairs) -> str:
    """The usual line, and registrations a second."""
    rate = ADAPTERS / ROUNDS * len(pairs.ours) / sum(pairs.ours)
    line = pairs.line(f"register {ADAPTERS} adapters, {where}", own_peak_mib())
    return f"{line}, {rate:.1f} registrations a second"


def _registrations(url: str, base: Path, directories: list[Path], folder: Path) -> Pairs:
    """Both do one share of the adapters after the other; the first share warms up."""
    migrate.upgrade(url)
    with _context(url, folder / "store") as context, Bare.opened(folder / "bare") as bare:
        add.add_base(context, base, "tiny")
        return in_turns(
            _in_shares(directories, bare.register),
            _in_shares(directories, lambda item: add.add_adapter(context, item, "tiny", f"a{item.name}")),
            ROUNDS - 1,
        )


def _in_shares(directories: list[Path], register: Callable[[Path], object]) -> Callable[[], None]:
    rest = iter(directories)

    def share() -> None:
        for _ in range(ADAPTERS // ROUNDS):
            register(next(rest))

    return share


@contextmanager
def _context(url: str, store: Path) -> Iterator[Context]:
    with Database(url) as database:
        yield Context(database, FolderStore(store), LazyComposer(1, 2**30), "bench")


def _large_tensors() -> dict[str, tiny.Array]:
    draw = np.random.default_rng(0)
    extra = {f"extra.{n}.weight": draw.random((SIDE, SIDE), dtype=np.float32) for n in range(TENSORS)}
    return tiny.base_tensors() | extra


@dataclass(frozen=True)
class Bare:
    """Hashing, syncs and commits with nothing around them."""

    folder: Path
    connection: sqlite3.Connection

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[Bare]:
        """An empty folder and a database with one bare table."""
        folder.mkdir(parents=True)
        with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as connection:
            for statement in ("journal_mode = WAL", "synchronous = FULL"):
                connection.execute(f"PRAGMA {statement}").close()
            connection.execute("CREATE TABLE bare (key TEXT PRIMARY KEY, data BLOB)")
            yield cls(folder, connection)

    def register(self, directory: Path) -> None:
        """One adapter."""
        digests = [self._keep(file) for file in sorted(directory.iterdir())]
        data = (directory / "adapter_model.safetensors").read_bytes()
        size = len(data) // (2 * len(tiny.MODULES))
        digests += [blake3(data[start : start + size]).hexdigest() for start in range(0, len(data) - size, size)]
        rows = [(f"{directory.name} {n} {digests[0]}", bytes(size)) for n, size in enumerate(ROW_BYTES)]
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO bare VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")

    def _keep(self, file: Path) -> str:
        data = file.read_bytes()
        hashlib.sha256(data)
        digest = blake3(data).hexdigest()
        staged, shard = self.folder / "staged", self.folder / digest[:2]
        with staged.open("wb", buffering=0) as target:
            target.write(data)
            os.fsync(target.fileno())
        if not shard.exists():
            shard.mkdir()
            _sync(self.folder)
        staged.rename(shard / digest)
        _sync(shard)
        return digest


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    print("\n".join(run()))
