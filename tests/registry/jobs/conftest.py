"""Registries whose jobs are done elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.registry.jobs.shop import Shop
from tests.support.databases import TEMPLATE, PostgresServer


@pytest.fixture
def shop(database_url: str, tmp_path: Path) -> Shop:
    """A furnished one; the processes inherit nothing but where it is."""
    return Shop(tmp_path, database_url).furnish()


@pytest.fixture
def shared_shop(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    """A furnished one that many processes may use at once."""
    name = postgres_server.create(TEMPLATE)
    yield Shop(tmp_path, postgres_server.url(name)).furnish()
    postgres_server.drop(name)
