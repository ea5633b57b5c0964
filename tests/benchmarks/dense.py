"""Coordinate methods in delta space against PEFT: seconds a module, and how far from the best rank ours may end."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from compose import ComposeRequest, Member
from schemas.methods import DareChoices, DtypeChoices, Method, TiesChoices, ties_preset
from tests.benchmarks.inputs import SQUARE, engine, members, pairs, square
from tests.benchmarks.measure import cpu_seconds, peak_mib, timed
from tests.benchmarks.peft_peer import peft_merge
from tests.compose.building import figures, request

RANKS = (16,) * 3
RANK = 16
DENSITY = 0.2
MODULES = 2


def line(method: Method, peer_method: str, work: DtypeChoices) -> str:
    """Two modules at once on two workers; PEFT does one after the other and is timed on one."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{method}-") as folder:
        given, out = members(Path(folder), square(MODULES), RANKS), Path(folder, "out.safetensors")
        asked = question(method, given, work)
        ours = min(timed(partial(engine, asked, out)) for _ in range(2)) / MODULES
        measured = figures(engine(asked, out), "m000")
        one = [pairs({"m000": SQUARE}, rank, seed)["m000"] for seed, rank in enumerate(RANKS)]
        peer = peft_merge(one, peer_method, RANK, DENSITY)
        cpu = cpu_seconds(partial(engine, asked, out)) / MODULES
        excess = measured["certificate"]["excess"] / measured["discarded_energy"]
        peak = peak_mib(engine, asked, out)
    return (
        f"{method} {work.work} 4096 x 4096, 3 of rank 16, density {DENSITY}, a module: peer {peer.seconds:.2f} s, "
        f"ours {ours:.3f} s, ratio {peer.seconds / ours:.1f} x, CPU ratio {peer.cpu / cpu:.1f} x, peak {peak:.0f} MiB, "
        f"certified excess of the discarded energy {excess:.1e} (targets 15 x, 1e-5)"
    )


def question(method: Method, given: list[Member], work: DtypeChoices) -> ComposeRequest:
    """PEFT's choices; for DARE, TIES does not trim again."""
    dare = DareChoices(density=DENSITY, seed="0") if method.startswith("dare") else None
    ties: TiesChoices = ties_preset("peft", 1.0 if dare else DENSITY)
    return request(method, given, rank=RANK, ties=ties, dare=dare, dtype=work)
