"""Members of real sizes on disk, and one run of the engine over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from compose import ComposeRequest, ComposeResult, Member, Options, compose
from tests.compose.building import Pair, member, random_pair

Shape = tuple[int, int]
"""(d_out, d_in)."""

SQUARE: Shape = (4096, 4096)
DECODER: Mapping[str, Shape] = {
    "self_attn.q_proj": (4096, 4096),
    "self_attn.k_proj": (4096, 4096),
    "self_attn.v_proj": (4096, 4096),
    "self_attn.o_proj": (4096, 4096),
    "mlp.gate_proj": (11008, 4096),
    "mlp.up_proj": (11008, 4096),
    "mlp.down_proj": (4096, 11008),
}
LAYERS = 32
WORKERS = 2


def square(modules: int, shape: Shape = SQUARE) -> dict[str, Shape]:
    """Modules of one shape."""
    return {f"m{number:03}": shape for number in range(modules)}


def seven_billion() -> dict[str, Shape]:
    """The 224 linear modules of a 7B decoder."""
    return {f"model.layers.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in DECODER.items()}


def pairs(shapes: Mapping[str, Shape], rank: int, seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Pair]:
    """Random pairs whose product has entries near 1."""
    made = {}
    for number, (module, (d_out, d_in)) in enumerate(shapes.items()):
        a, b = random_pair(rank, d_out, d_in, 1000 * seed + number, torch.float32)
        made[module] = (a.div_(rank**0.5).to(dtype), b.to(dtype))
    return made


def members(
    folder: Path, shapes: Mapping[str, Shape], ranks: Sequence[int], dtype: torch.dtype = torch.float32
) -> list[Member]:
    """One adapter file for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    return [member(folder, f"adapter{index}", pairs(shapes, rank, index, dtype)) for index, rank in enumerate(ranks)]


def engine(asked: ComposeRequest, out: Path) -> ComposeResult:
    """Two workers."""
    return compose(asked, out, options=Options(workers=WORKERS))
