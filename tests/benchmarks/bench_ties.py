"""`ties` in delta space with an output of rank 16, in float32 as PEFT works and in float64, the default.

Target: 15 times faster than PEFT's `ties_svd`, excess of the discarded energy at most 1e-5.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.methods import DtypeChoices
from tests.benchmarks.dense import line


def run() -> Iterator[str]:
    """Two lines."""
    yield line("ties", "ties_svd", DtypeChoices(work="float32"))
    yield line("ties", "ties_svd", DtypeChoices(work="float64"))
