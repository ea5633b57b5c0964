"""`delta_svd` of four rank-16 adapters over 224 modules of 4096 x 4096, float64, two workers, against PEFT's `svd`.

Target: 1,000 times faster, and all 224 in 2 s on a quiet machine. PEFT does one module and is extrapolated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from compose import Member
from schemas.methods import DtypeChoices
from tests.benchmarks.inputs import SQUARE, engine, members, pairs, square
from tests.benchmarks.measure import cpu_seconds, peak_mib, timed
from tests.benchmarks.peft_peer import peft_merge
from tests.compose.building import request

MODULES = 224
RANKS = (16,) * 4
RANK = 16
ROUNDS = 3


def run() -> Iterator[str]:
    """One line."""
    with tempfile.TemporaryDirectory(prefix="bench-delta-svd-") as folder:
        given = members(Path(folder), square(MODULES), RANKS)
        out = Path(folder, "out.safetensors")
        compose_all(given, out)
        ours = min(timed(lambda: compose_all(given, out)) for _ in range(ROUNDS))
        one = [pairs({"m": SQUARE}, rank, seed)["m"] for seed, rank in enumerate(RANKS)]
        merged = peft_merge(one, "svd", RANK)
        peer, cpu = merged.seconds * MODULES, cpu_seconds(lambda: compose_all(given, out))
        yield (
            f"delta_svd {MODULES} modules of 4096 x 4096, R 64: peer {peer:.1f} s ({MODULES} x {merged.seconds:.2f} s, "
            f"extrapolated from one module), ours {ours:.3f} s, ratio {peer / ours:.0f} x, "
            f"CPU ratio {merged.cpu * MODULES / cpu:.0f} x, "
            f"peak {peak_mib(compose_all, given, out):.0f} MiB (targets 1000 x, 2 s)"
        )


def compose_all(given: list[Member], out: Path) -> None:
    """All modules."""
    engine(request("delta_svd", given, rank=RANK, dtype=DtypeChoices()), out)
