"""A registry on SQLite: the cases are about what is merged, not about which database keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import copyfile

import pytest

# Installs the shape checks of the kernels before anything here imports them.
import tests.compose.conftest  # noqa: F401
from registry.db import Database
from registry.service.context import Context
from registry.storage import open_store
from registry.wiring import LazyComposer

Registry = Callable[..., Context]


@pytest.fixture
def another_registry(sqlite_template: Path, tmp_path: Path) -> Iterator[Registry]:
    """Makes registries that share nothing; arguments are the composer's workers and memory limit in bytes."""
    with ExitStack() as stack:

        def make(name: str, workers: int = 1, memory_limit: int = 2**30) -> Context:
            home = tmp_path / name
            home.mkdir()
            copyfile(sqlite_template, home / "registry.db")
            database = stack.enter_context(Database(f"sqlite:///{home / 'registry.db'}"))
            return Context(database, open_store(str(home / "store")), LazyComposer(workers, memory_limit), "tester")

        yield make


@pytest.fixture
def context(another_registry: Registry) -> Context:
    """A fresh registry."""
    return another_registry("registry")
