"""A file of 1 GiB sent to a real server process, against a handler in the same server that only writes and fsyncs.

Targets: at most 2 times as long (half the throughput), and the server under 200 MiB of memory at its peak. Once as one
`PUT /v1/blobs/{digest}`, once by the client, in pieces that could be resumed. Hashing (BLAKE3 and SHA-256) takes one
core of the two; sender and receiver share the other.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import httpx2
import uvicorn
from starlette.requests import Request
from starlette.responses import Response

from registry.api.app import create_app
from registry.api.logs import configure
from registry.api.serving import Protocol
from registry.client.transfer import upload_file
from registry.db import Database, migrate
from registry.service import tokens
from registry.service.context import Context
from registry.storage import FolderStore, hash_file
from registry.wiring import LazyComposer
from tests.benchmarks.bench_ingest import BLOCK, BLOCKS, write_random
from tests.benchmarks.measure import in_turns, load

TIMES = 2
PAIRS = 3
BARE = "/v1/blobs/bare/sink"
MIB = 2**20


def run() -> Iterator[str]:
    """Two lines, each with the server's peak memory since it started."""
    with tempfile.TemporaryDirectory(prefix="bench-upload-") as folder:
        home = Path(folder)
        file = write_large(home / "file")
        digest = hash_file(file).digest
        with server(home) as (http, pid, store):
            ways: dict[str, Callable[[], object]] = {
                "in one request": partial(put, http, f"/v1/blobs/{digest}", file),
                "in pieces": partial(upload_file, http, file, digest),
            }
            for name, way in ways.items():
                ours = partial(stored_anew, way, store, digest)
                pairs = in_turns(partial(put, http, BARE, file), ours, PAIRS)
                rate = file.stat().st_size / MIB * len(pairs.ours) / sum(pairs.ours)
                line = pairs.line(f"upload 1 GiB {name}", peak_of(pid))
                yield f"{line}, {rate:.0f} MiB/s, {load()}"


def write_large(file: Path) -> Path:
    """Random bytes, written a few times over: a digest does not mind."""
    write_random(file)
    with file.open("rb") as source, file.open("ab") as target:
        for _ in range(BLOCKS * (TIMES - 1)):
            target.write(source.read(BLOCK))
    return file


def put(http: httpx2.Client, path: str, file: Path) -> None:
    """The file as one body."""

    def blocks() -> Iterator[bytes]:
        with file.open("rb", buffering=0) as source:
            while block := source.read(MIB):
                yield block

    headers = {"Content-Length": str(file.stat().st_size)}
    http.put(path, content=blocks(), headers=headers, timeout=600).raise_for_status()


def stored_anew(way: Callable[[], object], store: FolderStore, digest: str) -> None:
    """Upload what the store does not hold."""
    store.delete(digest)
    way()


def peak_of(pid: int) -> float:
    """Peak resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextmanager
def server(home: Path) -> Iterator[tuple[httpx2.Client, int, FolderStore]]:
    """A server process over a fresh registry, and a client that may register."""
    url = f"sqlite:///{home / 'registry.db'}"
    migrate.upgrade(url)
    with Database(url) as database:
        store = FolderStore(home / "store")
        token = tokens.create(Context(database, store, LazyComposer(1, 2**30), "bench"), "bench", ("read", "register"))
    near, far = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(url, home, far), daemon=True)
    process.start()
    far.close()
    assert process.pid is not None
    headers = {"Authorization": f"Bearer {token.secret}"}
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{near.recv()}", headers=headers) as http:
            yield http, process.pid, store
    finally:
        process.terminate()
        process.join()


def serve(url: str, home: Path, far: Connection) -> None:
    """The application as `registry serve` runs it, with the bare handler beside."""
    configure("json")
    with Database(url) as database:
        app = create_app(Context(database, FolderStore(home / "store"), LazyComposer(1, 2**30), "bench"))
        app.router.add_route(BARE, partial(bare, home / "bare"), methods=["PUT"])
        config = uvicorn.Config(app, port=0, http=Protocol, ws="none", log_config=None, access_log=False)
        listening = config.bind_socket()
        far.send(listening.getsockname()[1])
        uvicorn.Server(config).run([listening])


async def bare(target: Path, request: Request) -> Response:
    """Write every chunk as it comes, and fsync."""
    with target.open("wb", buffering=0) as file:
        async for chunk in request.stream():
            file.write(chunk)
        os.fsync(file.fileno())
    target.unlink()
    return Response(status_code=201)
