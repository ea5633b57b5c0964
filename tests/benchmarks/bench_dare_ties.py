"""`dare_ties` in delta space with an output of rank 16, in float32 as PEFT works and in float64, the default.

Target: 15 times faster than PEFT's `dare_ties_svd`, excess of the discarded energy at most 1e-5.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.methods import DtypeChoices
from tests.benchmarks.dense import line


def run() -> Iterator[str]:
    """Two lines."""
    yield line("dare_ties", "dare_ties_svd", DtypeChoices(work="float32"))
    yield line("dare_ties", "dare_ties_svd", DtypeChoices(work="float64"))
