"""Counts of what the database holds, for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from registry.db import counts
from registry.service.context import Context


@dataclass(frozen=True)
class Figures:
    """Rows by state or kind."""

    jobs: Mapping[str, int]
    deliveries: Mapping[str, int]
    manifests: Mapping[str, int]
    generations: int


def count(context: Context) -> Figures:
    """Count once; each figure is read from an index."""
    with context.database.reading() as reader:
        return Figures(
            jobs=counts.jobs(reader),
            deliveries=counts.deliveries(reader),
            manifests=counts.manifests(reader),
            generations=counts.generations(reader),
        )
