"""Commands that have everything imported, and an empty registry folder a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.databases import PostgresServer
from tests.support.house import House
from tests.support.warmed import Warmed


@pytest.fixture(scope="session")
def warmed() -> Warmed:
    """Runs commands that have everything imported."""
    return Warmed()


@pytest.fixture
def house(tmp_path: Path, database_url: str) -> House:
    """A registry with a base and two adapters, once on SQLite and once on PostgreSQL."""
    return House(tmp_path, database_url).furnish()


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest) -> Iterator[Callable[[Path], str]]:
    """Makes one database without a schema after another; a folder is where SQLite puts its file."""
    if request.param == "sqlite":
        yield lambda folder: f"sqlite:///{folder / 'registry.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    made: list[str] = []

    def create(_folder: Path) -> str:
        made.append(server.create())
        for name in made[:-1]:
            server.drop(name)
        del made[:-1]
        return server.url(made[0])

    yield create
    for name in made:
        server.drop(name)
