"""Small adapters on disk, and modules in memory, for the engine's tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from compose import (
    ComposeRequest,
    ComposeResult,
    FactorSource,
    Member,
    Options,
    ReplacementSource,
    TensorSource,
    compose,
)
from compose.module import LoadedFactor, ModuleInput, ModuleOutput
from schemas.digests import blob_digest
from schemas.methods import Choices, DareChoices, DtypeChoices, Method, PruneChoices, Space, SvdChoices, TiesChoices

BASE = blob_digest(b"base")
Pair = tuple[Tensor, Tensor]
"""(A [r, d_in], B [d_out, r])."""

EXACT = DtypeChoices(store="float64")


def matrix(rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.float64) -> Tensor:
    """A matrix from numbers."""
    return torch.tensor(rows, dtype=dtype)


def random_pair(rank: int, d_out: int, d_in: int, seed: int, dtype: torch.dtype = torch.float64) -> Pair:
    """A random pair."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(rank, d_in, generator=generator, dtype=torch.float64)
    b = torch.randn(d_out, rank, generator=generator, dtype=torch.float64)
    return a.to(dtype), b.to(dtype)


def digest_of(name: str) -> str:
    """A digest that stands for an adapter."""
    return blob_digest(name.encode())


def read_sources(path: Path) -> dict[str, TensorSource]:
    """Where each tensor of a safetensors file lies."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    sources = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        start, end = entry["data_offsets"]
        sources[name] = TensorSource(path, 8 + length + start, end - start, entry["dtype"], tuple(entry["shape"]))
    return sources


def member(
    folder: Path,
    name: str,
    pairs: Mapping[str, Pair],
    *,
    weight: float = 1.0,
    scale: float = 1.0,
    scales: Mapping[str, float] | None = None,
    replacements: Mapping[str, Tensor] | None = None,
) -> Member:
    """Write an adapter and name it as a member."""
    tensors = {
        f"{module}.{role}": pair[i].contiguous() for module, pair in pairs.items() for i, role in enumerate("AB")
    }
    whole = dict(replacements or {})
    path = folder / f"{name}.safetensors"
    save_file({**tensors, **whole}, path)
    sources = read_sources(path)
    factors = tuple(
        FactorSource(
            module, pair[0].shape[0], (scales or {}).get(module, scale), sources[f"{module}.A"], sources[f"{module}.B"]
        )
        for module, pair in pairs.items()
    )
    return Member(digest_of(name), weight, factors, tuple(ReplacementSource(key, sources[key]) for key in whole))


def request(
    method: Method,
    members: Sequence[Member],
    *,
    space: Space = "delta",
    rank: int | None = None,
    ties: TiesChoices | None = None,
    dare: DareChoices | None = None,
    prune: PruneChoices | None = None,
    svd: SvdChoices | None = None,
    dtype: DtypeChoices = EXACT,
) -> ComposeRequest:
    """A request, stored in float64 unless said otherwise."""
    choices = Choices(rank=rank, ties=ties, dare=dare, prune=prune, svd=svd, dtype=dtype)
    return ComposeRequest(method, space, choices, BASE, tuple(members))


def run(asked: ComposeRequest, out: Path, options: Options | None = None) -> tuple[ComposeResult, dict[str, Tensor]]:
    """Compose and read the file back with safetensors' own reader."""
    result = compose(asked, out, options=options or Options(workers=1))
    return result, load_file(result.path)


def delta(tensors: Mapping[str, Tensor], module: str = "m") -> Tensor:
    """The stored delta of a module in float64."""
    return tensors[f"{module}.lora_B"].double() @ tensors[f"{module}.lora_A"].double()


def module_input(
    pairs: Sequence[Pair],
    *,
    weights: Sequence[float] | None = None,
    scales: Sequence[float] | None = None,
    rank: int = 1,
    names: Sequence[str] | None = None,
    ties: TiesChoices | None = None,
    dare: DareChoices | None = None,
    prune: PruneChoices | None = None,
    svd: SvdChoices | None = None,
    dtype: DtypeChoices = EXACT,
) -> ModuleInput:
    """A module in memory, for operators."""
    count = len(pairs)
    factors = tuple(
        LoadedFactor(digest_of(name), weight, scale, a, b)
        for (a, b), weight, scale, name in zip(
            pairs,
            weights or [1.0] * count,
            scales or [1.0] * count,
            names or [str(index) for index in range(count)],
            strict=True,
        )
    )
    return ModuleInput("m", factors, Choices(ties=ties, dare=dare, prune=prune, svd=svd, dtype=dtype), rank)


def as_delta(dense: Tensor) -> Pair:
    """A pair whose delta is the given matrix: A the identity."""
    return torch.eye(dense.shape[1], dtype=dense.dtype), dense


def product(output: ModuleOutput) -> Tensor:
    """``b @ a`` of an operator's output in float64."""
    return output.b.double() @ output.a.double()


def figures(result: ComposeResult, module: str) -> dict[str, Any]:
    """A module's part of the ledger."""
    modules = result.ledger["modules"]
    assert isinstance(modules, dict)
    found = modules[module]
    assert isinstance(found, dict)
    return dict(found)


def total(result: ComposeResult) -> dict[str, Any]:
    """The ledger's total."""
    found = result.ledger["total"]
    assert isinstance(found, dict)
    return dict(found)
