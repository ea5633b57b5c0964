"""Run oracles on their own fixtures."""

from collections.abc import Iterable, Iterator
from time import perf_counter

from oracles.registry import load
from oracles.report import Report, build


def run(name: str) -> Report:
    """Execute one oracle; a failed check is a result, a fixture outside its contract raises."""
    oracle = load(name)
    fixture = oracle.fixture_bytes()
    start = perf_counter()
    checks = oracle.checks(fixture)
    return build(oracle, checks, fixture, perf_counter() - start)


def run_all(names: Iterable[str]) -> Iterator[Report]:
    """Execute several oracles in the given order, each report as soon as it is there."""
    return (run(name) for name in names)
