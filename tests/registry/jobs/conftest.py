"""Registries whose jobs are done elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.registry.jobs.shop import Shop


@pytest.fixture
def shop(database_url: str, tmp_path: Path) -> Shop:
    """A furnished one; the processes inherit nothing but where it is."""
    return Shop(tmp_path, database_url).furnish()
