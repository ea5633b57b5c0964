"""A server under load: requests a second and latencies of reads, lineage, registrations and publications.

The server is a process of its own, asked over loopback by threads of this one, each on a connection it keeps. Database
and store are filled with 1 million manifests first, or with as many as `BENCH_MANIFESTS` says. The load shares the
machine's cores with the server, so a server alone does better.
"""

from __future__ import annotations

import http.client
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from registry.client import EmbeddedRegistry
from registry.settings import Settings
from registry.wiring import initialise
from tests.benchmarks.bench_lineage import ROOT, digest, fill
from tests.benchmarks.measure import load
from tests.support import tiny
from tests.support.databases import PostgresServer
from tests.support.served import Served, multipart, serving

SIZE = int(os.environ.get("BENCH_MANIFESTS", "1000000"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "10"))
CLIENTS = 4
READ = 50
"""Adapters that are really there, among which readers choose."""
EVERYTHING = ("read", "register", "publish")


@dataclass
class Caller:
    """One thread with its connection, and the seconds of every request."""

    server: Served
    token: str
    number: int
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(*self.server.address, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> str:
        """One request that must succeed; its ETag."""
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        start = perf_counter()
        self._connection.request(method, path, body, sent)
        answer = self._connection.getresponse()
        told = answer.read()
        self.seconds.append(perf_counter() - start)
        assert answer.status < 300, told[:500]
        return answer.headers.get("ETag", "")

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


Work = Callable[[Caller, int], None]


def run() -> Iterator[str]:
    """One line a database and kind of request."""
    postgres = PostgresServer()
    try:
        for kind in ("sqlite", "postgresql"):
            with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
                name = postgres.create()
                home = Path(folder)
                url = postgres.url(name) if kind == "postgresql" else f"sqlite:///{home / 'registry.db'}"
                yield from measured(kind, url, home)
                postgres.drop(name)
    finally:
        postgres.stop()


def measured(kind: str, url: str, folder: Path) -> Iterator[str]:
    """Fill, serve, and put one kind of load on it after another."""
    settings = Settings(home=folder, database_url=url, store_url=str(folder / "store"), workers=1, principal="bench")
    initialise(settings)
    fill(url, SIZE)
    with EmbeddedRegistry.open(settings) as registry:
        registry.add_base(tiny.write_base(folder / "base"), "tiny", store=True)
        made = [tiny.write_adapter(folder / f"read-{number}", number) for number in range(READ)]
        held = [registry.add_adapter(path, "tiny", path.name).digest for path in made]
        token = registry.create_token("bench", EVERYTHING).secret
    environment = {
        "REGISTRY_HOME": str(folder),
        "REGISTRY_DATABASE_URL": url,
        "REGISTRY_STORE_URL": str(folder / "store"),
    }
    with serving(folder, environment, "--no-jobs") as server:
        for name, work in loads(folder, held).items():
            yield f"load {kind} {SIZE} manifests: {name}, {figures(server, token, work)}, {load()}"


def loads(folder: Path, held: list[str]) -> dict[str, Work]:
    """What is asked, by name; `turn` counts the requests of a caller."""
    seeds, lock = count(1000), threading.Lock()

    def register(caller: Caller, _turn: int) -> None:
        with lock:
            seed = next(seeds)
        path = tiny.write_adapter(folder / f"new-{seed}", seed)
        body, form = multipart(path, {"name": path.name, "base": "tiny"})
        caller.ask("POST", "/v1/adapters", body, form)

    def publish(caller: Caller, turn: int) -> None:
        sent = {"If-Match": f'"g{turn}"', "Content-Type": "application/json"}
        body = json.dumps({"refs": [held[turn % READ]]}).encode()
        caller.ask("POST", f"/v1/channels/bench-{caller.number}/generations", body, sent)

    return {
        "manifest": lambda caller, turn: _read(caller, f"/v1/manifests/{held[turn % READ]}"),
        "lineage of 200 ancestors": lambda caller, _turn: _read(caller, f"/v1/lineage/{digest(ROOT)}?direction=up"),
        "register": register,
        "publish": publish,
    }


def _read(caller: Caller, path: str) -> None:
    caller.ask("GET", path)


def figures(server: Served, token: str, work: Work) -> str:
    """Requests a second, and latencies of all callers together."""
    with calling(server, token, [CLIENTS]) as (warming,):
        work(warming, 0)
    with calling(server, token, range(CLIENTS)) as callers:
        start = perf_counter()
        until = start + SECONDS

        def call(caller: Caller) -> None:
            for turn in count():
                if perf_counter() > until:
                    return
                work(caller, turn)

        threads = [threading.Thread(target=call, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = perf_counter() - start
    seconds = [one for caller in callers for one in caller.seconds]
    cuts = quantiles(seconds, n=100)
    p50, p95, p99 = (1000 * cuts[place] for place in (49, 94, 98))
    return f"{len(seconds) / wall:.0f} requests/s, p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms"


@contextmanager
def calling(server: Served, token: str, numbers: Iterable[int]) -> Iterator[list[Caller]]:
    """Callers with a connection each."""
    made = [Caller(server, token, number) for number in numbers]
    try:
        yield made
    finally:
        for caller in made:
            caller.close()


if __name__ == "__main__":
    print("\n".join(run()))
