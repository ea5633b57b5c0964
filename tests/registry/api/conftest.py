"""A caller of the web: over both databases where that matters, over SQLite where only HTTP does."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.db import Database
from registry.service.context import Context
from registry.storage import open_store
from registry.wiring import LazyComposer
from tests.support.web import Api, fill, opened


@pytest.fixture
def caller(context: Context) -> Iterator[Api]:
    """Over an empty registry, once on SQLite and once on PostgreSQL."""
    with opened(context) as api:
        yield api


@pytest.fixture
def stocked(caller: Api, tiny_base: Path, tmp_path: Path) -> Api:
    """The same with a base and three adapters."""
    fill(caller, tiny_base, tmp_path, "one", "two", "three")
    return caller


@pytest.fixture
def light(sqlite_template: Path, tmp_path: Path) -> Iterator[Context]:
    """A registry on SQLite."""
    shutil.copyfile(sqlite_template, tmp_path / "light.db")
    with Database(f"sqlite:///{tmp_path / 'light.db'}") as database:
        yield Context(database, open_store(str(tmp_path / "light")), LazyComposer(1, 2**30), "tester")


@pytest.fixture
def web(light: Context) -> Iterator[Api]:
    """A caller over an empty registry on SQLite."""
    with opened(light) as api:
        yield api


@pytest.fixture
def shelf(web: Api, tiny_base: Path, tmp_path: Path) -> Api:
    """The same with a base and two adapters."""
    fill(web, tiny_base, tmp_path, "one", "two")
    return web
