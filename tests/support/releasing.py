"""A dense release in a process of its own, which imports nothing but what a release needs."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from time import perf_counter

from registry.db import Database
from registry.service import export
from registry.service.context import Context
from registry.service.export import Form
from registry.storage import FolderStore
from registry.wiring import LazyComposer


def opened(database: Database, store: Path) -> Context:
    """A registry with two workers and 1 GiB."""
    return Context(database, FolderStore(store), LazyComposer(2, 2**30), "test")


def released(url: str, store: Path, ref: str, out: Path) -> tuple[float, float]:
    """Release into `out`; seconds and the peak of resident memory in bytes."""
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(_release, (url, store, ref, out))


def _release(url: str, store: Path, ref: str, out: Path) -> tuple[float, float]:
    with Database(url) as database:
        start = perf_counter()
        export.export(opened(database, store), ref, out, Form("base", "dense"))
        seconds = perf_counter() - start
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return seconds, int(status.partition("VmHWM:")[2].split()[0]) * 1024
