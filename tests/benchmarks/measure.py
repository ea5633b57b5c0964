"""Measuring in pairs, and peak memory of a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time


@dataclass(frozen=True)
class Pairs:
    """Seconds of each run of the peer and of ours, taken in turns so that both see the same machine."""

    peer: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median over the pairs of ours / peer."""
        return median(own / other for own, other in zip(self.ours, self.peer, strict=True))

    def line(self, name: str, peak_mib: float) -> str:
        """The line a benchmark prints."""
        peer, ours = median(self.peer), median(self.ours)
        return f"{name}: peer {peer:.3f} s, ours {ours:.3f} s, ratio {self.ratio:.2f} x, peak {peak_mib:.0f} MiB"


def in_turns(peer: Callable[[], object], ours: Callable[[], object], pairs: int) -> Pairs:
    """Time both alternately, after one run of each that warms the caches."""
    peer()
    ours()
    seconds = [(timed(peer), timed(ours)) for _ in range(pairs)]
    return Pairs(tuple(first for first, _ in seconds), tuple(second for _, second in seconds))


def timed(work: Callable[[], object]) -> float:
    """Wall-clock seconds of one run."""
    start = perf_counter()
    work()
    return perf_counter() - start


def cpu_seconds(work: Callable[[], object]) -> float:
    """Processor seconds of one run over all threads: they tell more than the clock on a machine others use."""
    start = process_time()
    work()
    return process_time() - start


def load() -> str:
    """How busy the machine is with others and us: runnable processes over the last minute."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def peak_mib(work: Callable[..., object], *arguments: object) -> float:
    """Peak resident memory in MiB of a fresh process that does only this; `work` is a module's function."""
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(_peak_after, (work, arguments))


def _peak_after(work: Callable[..., object], arguments: tuple[object, ...]) -> float:
    work(*arguments)
    return own_peak_mib()


def own_peak_mib() -> float:
    """Peak resident memory of this process in MiB; `getrusage` would count the parent's size at the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
