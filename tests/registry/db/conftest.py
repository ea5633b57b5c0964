"""A fresh database on each backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from registry.db import Database


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A migrated database."""
    with Database(database_url) as opened:
        yield opened
