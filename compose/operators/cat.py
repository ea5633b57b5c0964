"""Exact static sum by block concatenation (R 0x05B)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor

from compose.lowrank import (
    Grams,
    Stacks,
    as_numbers,
    factor_error,
    gram_of,
    leading,
    product_norm,
    rank_above,
    stack,
    tiles,
    trace_norm,
)
from compose.module import Figures, ModuleInput, ModuleOutput
from compose.shapes import GramR, StackA, StackB
from compose.tensors import round_once, store_dtype, work_dtype


def cat(module: ModuleInput) -> ModuleOutput:
    """``A = [c_1 A_1; ...; c_J A_J]`` and ``B = [B_1 ... B_J]``, so ``B A = sum_i c_i B_i A_i`` without cross terms.

    The coefficient goes into A in the work dtype and is rounded once; ranks, scales and module sets may differ.
    """
    work, store = work_dtype(module.choices.dtype), store_dtype(module.choices.dtype)
    stacks = stack(module.factors)
    a = _weighted(stacks, work, store)
    b = stacks.raw_b if stacks.raw_b.dtype == store else round_once(stacks.b, store)
    grams = Grams(gram_of(stacks.raw_b.T), a.gram, stacks)
    error = trace_norm(grams.b, a.loss) if b is stacks.raw_b else None
    return ModuleOutput(a.stored, b, _figures(grams, _error(stacks, b, a.stored) if error is None else error))


@dataclass(frozen=True)
class _Weighted:
    """``c A`` as stored, with ``A A^T`` and ``X X^T`` of what storing takes, ``X = c A - stored``."""

    stored: StackA
    gram: GramR
    loss: GramR


def _weighted(stacks: Stacks, work: torch.dtype, store: torch.dtype) -> _Weighted:
    raw, c = stacks.raw_a, stacks.c[:, None]
    stored = _stored(stacks, work, store)
    gram, loss = (c.new_zeros(len(raw), len(raw)) for _ in range(2))
    exact = stored.dtype == raw.dtype and bool((c.square() == c.abs()).all())
    for columns in tiles(raw):
        tile = raw[:, columns].to(torch.float64)
        gram.addmm_(tile, tile.T)
        if not exact:
            lost = (tile * c).sub_(stored[:, columns])
            # Powers of two lose nothing. Where all squares are 0, so are all products, which cost R times as much.
            flat = lost.view(-1)
            if float(flat.dot(flat)):
                loss.addmm_(lost, lost.T)
    return _Weighted(stored, gram, loss)


def _stored(stacks: Stacks, work: torch.dtype, store: torch.dtype) -> StackA:
    """``c A`` in the work dtype, rounded once."""
    raw, stored = stacks.raw_a, torch.empty_like(stacks.raw_a, dtype=store)
    coefficients = stacks.c.tolist()
    if store == raw.dtype and all(_in_one(c, work, store, raw.device) for c in coefficients):
        start = 0
        for c, run in groupby(coefficients):
            rows = slice(start, start := start + len(list(run)))
            torch.mul(raw[rows], c, out=stored[rows])
        return stored
    for columns in tiles(raw):
        stored[:, columns] = _rounded(raw[:, columns], stacks.c[:, None], work, store)
    return stored


def _rounded(values: Tensor, c: Tensor, work: torch.dtype, store: torch.dtype) -> Tensor:
    return round_once(values.to(work) * c.to(work), store)


@lru_cache(maxsize=1024)
def _in_one(c: float, work: torch.dtype, store: torch.dtype, device: torch.device) -> bool:
    """Whether torch's own product, which rounds to float32 in between, is right for all values of a 16-bit dtype.

    It is several times faster, and wrong only where the first rounding meets the middle of two stored values.
    """
    if store.itemsize != 2:
        return False
    every = torch.arange(1 << 16, dtype=torch.int32, device=device).to(torch.int16).view(store)
    finite = every[every.isfinite()]
    once = _rounded(finite, torch.tensor(c, dtype=torch.float64, device=device), work, store)
    return torch.equal((finite * c).view(torch.int16), once.view(torch.int16))


def _error(stacks: Stacks, b: StackB, a: StackA) -> float:
    """The distance of the stored pair, where the Gram matrices do not tell it."""
    weighted = stacks.a * stacks.c[:, None]
    return product_norm(stacks.b, weighted - a) if b is stacks.raw_b else factor_error(stacks.b, weighted, b, a)


def _figures(grams: Grams, error: float) -> Figures:
    values = torch.linalg.svdvals(grams.core())
    return Figures(
        norm=float(torch.linalg.norm(values)),
        singular_values=leading(values),
        numerical_rank=rank_above(values, grams.noise_floor()),
        discarded_energy=0.0,
        error=error,
        rounding=error,
        products=as_numbers(grams.products()),
    )
