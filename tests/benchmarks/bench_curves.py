"""What the engine costs as width d, rank r, members and modules grow, one axis at a time: a few points each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from schemas.methods import DtypeChoices, Method, ties_preset
from tests.benchmarks.inputs import engine, members, square
from tests.benchmarks.measure import peak_mib, timed
from tests.compose.building import request

AT = {"d": 4096, "r": 16, "members": 4, "modules": 16}
AXES = {"d": (1024, 2048, 4096, 8192), "r": (4, 16, 64), "members": (2, 8, 32), "modules": (8, 32, 128)}
DENSE = (512, 1024, 2048)
"""Widths of the dense method, two modules of three members."""


def run() -> Iterator[str]:
    """One line a point."""
    for axis, values in AXES.items():
        for value in values:
            yield point("delta_svd", **{**AT, axis: value})
    for d in DENSE:
        yield point("ties", d=d, r=16, members=3, modules=2)


def point(method: Method, **at: int) -> str:
    """Seconds of the second run of two, and the peak of a process of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-curves-") as folder:
        out = Path(folder, "out.safetensors")
        given = members(Path(folder), square(at["modules"], (at["d"], at["d"])), (at["r"],) * at["members"])
        ties = ties_preset("paper", 0.2) if method == "ties" else None
        asked = request(method, given, rank=at["r"], ties=ties, dtype=DtypeChoices())
        engine(asked, out)
        seconds, peak = timed(partial(engine, asked, out)), peak_mib(engine, asked, out)
    where = " ".join(f"{name} {value}" for name, value in at.items())
    each = 1000 * seconds / at["modules"]
    return f"curve {method} {where}: ours {seconds:.3f} s, {each:.1f} ms a module, peak {peak:.0f} MiB"
