"""`cat` of three rank-16 adapters of a 7B shape against a plain copy: inputs read, output written, one SHA-256 of it.

Target: at most 1.2 times the peer. A second line has 64 members of rank 1: memory does not grow with members.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from compose import ComposeRequest
from schemas.methods import DtypeChoices
from tests.benchmarks.inputs import engine, members, seven_billion
from tests.benchmarks.measure import in_turns, peak_mib
from tests.compose.building import request

BLOCK = 4 * 2**20
PAIRS = 3


def run() -> Iterator[str]:
    """Two lines."""
    for name, ranks in (("3 of rank 16", (16,) * 3), ("64 of rank 1", (1,) * 64)):
        with tempfile.TemporaryDirectory(prefix="bench-cat-") as folder:
            given = members(Path(folder, "in"), seven_billion(), ranks, torch.bfloat16)
            asked = request("cat", given, dtype=DtypeChoices(store="bfloat16"))
            out = Path(folder, "out.safetensors")
            inputs = sorted(Path(folder, "in").iterdir())
            pairs = in_turns(partial(copy, inputs, Path(folder, "copy")), partial(engine, asked, out), PAIRS)
            yield f"{pairs.line(f'cat over 7B shapes, {name}', _peak(asked, out))} (target 1.2 x)"


def copy(inputs: list[Path], out: Path) -> str:
    """Every input byte read, as many written and synced, one digest of what was written."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with out.open("wb", buffering=0) as target:
        for path in inputs:
            with path.open("rb", buffering=0) as source:
                while count := source.readinto(buffer):
                    digest.update(buffer[:count])
                    target.write(buffer[:count])
        os.fsync(target.fileno())
    return digest.hexdigest()


def _peak(asked: ComposeRequest, out: Path) -> float:
    return peak_mib(engine, asked, out)
