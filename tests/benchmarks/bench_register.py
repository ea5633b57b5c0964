"""Registering 2,000 adapters of 100 kB against the same hashing, syncs and commits done bare, in turns.

Target: at most 1.5 times the peer. The peer does what the registry does and nothing else, in one thread: it reads every
file once, hashes it with BLAKE3 and SHA-256 and every tensor with BLAKE3; for each batch of as many adapters as the
registry takes it writes every distinct file and syncs it, moves all of them, syncs each folder that got one, once, and
commits rows of the same number and sizes to a table without indexes but its key. Both do the same syncs and the same
number of commits; ours reads in as many processes as there are cores, and the start of these counts.

One by one, the peer's batch is one adapter. PostgreSQL keeps its files in memory and does not sync, for either.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Protocol

import psycopg
from blake3 import blake3

from registry.db import Database, migrate
from registry.db.session import batches
from registry.service import add, bulk
from registry.service.context import Context
from registry.storage import FolderStore
from registry.wiring import LazyComposer
from tests.benchmarks.measure import in_turns, load, own_peak_mib
from tests.support import tiny
from tests.support.databases import PostgresServer

ADAPTERS = 2_000
PAIRS = 3
ALONE, ALONE_PAIRS = 30, 4
"""Adapters a run, and runs, one by one."""
RANK = 390
"""Four modules of this rank make a file of 100 kB."""
ROW_BYTES = (2_600, 700, *[250] * 15)
"""The rows of one registration: manifest, statement and the small ones."""
EVENT_BYTES = 2_800
"""What one registration adds to the audit event of its batch."""
Rows = list[tuple[str, bytes]]


def run() -> Iterator[str]:
    """Two lines a database: many at once, and one by one."""
    with tempfile.TemporaryDirectory(prefix="bench-register-") as folder:
        home = Path(folder)
        directories = [tiny.write_adapter(home / "adapters" / f"a{n}", n, rank=RANK) for n in range(ADAPTERS)]
        base = tiny.write_base(home / "base")
        numbers = iter(range(10**6))
        bench = Bench(base, directories, home, lambda: f"sqlite:///{home / str(next(numbers))}.db")
        yield from bench.lines("sqlite")
        server = PostgresServer()
        try:
            bench = Bench(base, directories, home / "postgresql", lambda: server.url(server.create()))
            yield from bench.lines("postgresql without sync")
        finally:
            server.stop()


@dataclass(frozen=True)
class Bench:
    """Everything on one kind of database; `url` gives a new one."""

    base: Path
    directories: list[Path]
    home: Path
    url: Callable[[], str]

    def lines(self, where: str) -> Iterator[str]:
        """Many at once, then one by one."""
        jobs = os.cpu_count() or 1
        yield self._line(
            f"register {ADAPTERS} adapters at once, {where}",
            lambda context, share: bulk.add_adapters(context, share, "tiny", jobs=jobs),
            [self.directories] * (1 + PAIRS),
            bulk.BATCH,
        )
        rest = iter(self.directories)
        yield self._line(
            f"register {ALONE} adapters one by one, {where}",
            lambda context, share: [add.add_adapter(context, item, "tiny", item.name) for item in share],
            [list(islice(rest, ALONE)) for _ in range(1 + ALONE_PAIRS)],
            1,
        )

    def _line(
        self, name: str, register: Callable[[Context, Sequence[Path]], object], shares: list[list[Path]], batch: int
    ) -> str:
        """Each run takes the next share, into a registry of its own."""
        with ExitStack() as stack:
            contexts = iter([stack.enter_context(closing(Home(self.url(), self._folder()))) for _ in shares])
            bares = iter([stack.enter_context(closing(Bare(self.url(), self._folder()))) for _ in shares])
            ours, peers = iter(shares), iter(shares)
            processor = Processor()
            pairs = in_turns(
                lambda: processor.peer(next(bares).register, next(peers), batch),
                lambda: processor.ours(register, next(contexts).with_base(self.base), next(ours)),
                len(shares) - 1,
            )
        rate = len(shares[0]) * len(pairs.ours) / sum(pairs.ours)
        return f"{pairs.line(name, own_peak_mib())}, {rate:.1f} registrations a second, {processor}, {load()}"

    def _folder(self) -> Path:
        self.home.mkdir(exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.home))


class Processor:
    """Seconds of processor of both, processes started for it included: they tell more than the clock under load."""

    def __init__(self) -> None:
        self._peer: list[float] = []
        self._ours: list[float] = []

    def peer(self, work: Callable[..., object], *arguments: object) -> None:
        """One run of the peer."""
        self._peer.append(_processor_seconds(work, arguments))

    def ours(self, work: Callable[..., object], *arguments: object) -> None:
        """One run of ours."""
        self._ours.append(_processor_seconds(work, arguments))

    def __str__(self) -> str:
        return f"processor: peer {median(self._peer):.3f} s, ours {median(self._ours):.3f} s"


def _processor_seconds(work: Callable[..., object], arguments: tuple[object, ...]) -> float:
    before = sum(os.times()[:4])
    work(*arguments)
    return sum(os.times()[:4]) - before


class Home:
    """An empty registry."""

    def __init__(self, url: str, folder: Path) -> None:
        migrate.upgrade(url)
        self._database = Database(url)
        self._context = Context(self._database, FolderStore(folder), LazyComposer(1, 2**30), "bench")

    def with_base(self, base: Path) -> Context:
        """With the base in it."""
        add.add_base(self._context, base, "tiny")
        return self._context

    def close(self) -> None:
        """Give back its connections."""
        self._database.close()


class Table(Protocol):
    """One bare table in a database."""

    def commit(self, rows: Rows) -> None:
        """All rows in one transaction."""

    def close(self) -> None:
        """Give it back."""


class Bare:
    """Hashing, syncs and commits with nothing around them."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder = folder
        self._table: Table = SqliteTable(url) if url.startswith("sqlite") else PostgresTable(url)

    def register(self, directories: Sequence[Path], batch: int) -> None:
        """All directories, in batches."""
        for share in batches(directories, batch):
            contents: dict[str, bytes] = {}
            rows: Rows = [(f"event {share[0].name}", bytes(EVENT_BYTES * len(share)))]
            for directory in share:
                for file in sorted(directory.iterdir()):
                    data = file.read_bytes()
                    contents[digest_of(data, tensors=file.suffix == ".safetensors")] = data
                rows += [(f"{directory.name} {n}", bytes(size)) for n, size in enumerate(ROW_BYTES)]
            self._keep(contents)
            self._table.commit(rows)

    def close(self) -> None:
        """Give back the connection."""
        self._table.close()

    def _keep(self, contents: dict[str, bytes]) -> None:
        for digest, data in contents.items():
            with (self._folder / digest).open("wb", buffering=0) as target:
                target.write(data)
                os.fsync(target.fileno())
        shards = {self._folder / digest[:2] for digest in contents}
        made = [shard for shard in shards if not shard.exists()]
        for shard in made:
            shard.mkdir()
        if made:
            sync(self._folder)
        for digest in contents:
            (self._folder / digest).rename(self._folder / digest[:2] / digest)
        for shard in shards:
            sync(shard)


def digest_of(data: bytes, *, tensors: bool) -> str:
    """Both digests of a file, and those of the tensors in it."""
    hashlib.sha256(data).hexdigest()
    if tensors:
        size = len(data) // (2 * len(tiny.MODULES))
        for start in range(0, len(data) - size, size):
            blake3(memoryview(data)[start : start + size]).hexdigest()
    return blake3(data).hexdigest()


def sync(folder: Path) -> None:
    """Sync a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class SqliteTable:
    """As durable as the registry's."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"):
            self._connection.execute(statement).close()
        self._connection.execute("CREATE TABLE bare (key TEXT PRIMARY KEY, data BLOB)")

    def commit(self, rows: Rows) -> None:
        """All rows in one transaction."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO bare VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class PostgresTable:
    """By COPY, the fastest there is."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url.replace("+psycopg", ""))
        self._connection.execute("CREATE TABLE bare (key TEXT PRIMARY KEY, data BYTEA)")
        self._connection.commit()

    def commit(self, rows: Rows) -> None:
        """All rows in one transaction."""
        with self._connection.cursor() as cursor, cursor.copy("COPY bare FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        self._connection.commit()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


if __name__ == "__main__":
    print("\n".join(run()))
