"""Converts factors one module at a time: stack, scale, pad, balance, round once. Nothing here needs base weights.

Every rule is one operator with other arguments. For a factor with terms ``(sign_t, b_t, e_t, a_t)`` the exact pair is
``a = [sign_t diag(e_t) a_t]`` over rows and ``b = [b_t]`` over columns, in float64; rows whose e is zero are masked
triplets and fall away (V 0x03). The scale goes into one side where it is baked, zero rows and columns pad to a rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from compose.errors import refusal
from compose.gauge import balanced
from compose.ledger import significant
from compose.lowrank import factor_error, product_norm
from compose.request import TensorSource, WrittenTensor
from compose.tensors import FLOATS, check_finite, map_bytes, map_tensor, raw_bytes, round_once
from compose.threads import one_blas_thread
from compose.writer import Slot, lay_out, new_file
from schemas.canonical import JsonObject


@dataclass(frozen=True)
class TermSource:
    """One addend: ``sign * b [d_out, r] diag(e [r, 1]) a [r, d_in]``; without `e` the diagonal is one."""

    a: TensorSource
    b: TensorSource
    e: TensorSource | None = None
    sign: int = 1


@dataclass(frozen=True)
class ConvertFactor:
    """One output pair.

    Attributes:
        key: names it in the file; unique among the factors.
        terms: what it is made of; none gives zeros.
        sides: ``(d_out, d_in)``.
        dtype: safetensors name of the stored dtype.
        scale: the multiplier to bake, into `into`.
        rank: rows of a after padding with zeros; null for as many as there are.
        balance: split the singular values evenly, which makes the pair independent of its gauge.
    """

    key: str
    terms: tuple[TermSource, ...]
    sides: tuple[int, int]
    dtype: str
    scale: float = 1.0
    into: Literal["a", "b"] = "b"
    rank: int | None = None
    balance: bool = False


@dataclass(frozen=True)
class ConvertRequest:
    """Factors to make, and whole tensors to carry byte for byte by name."""

    factors: tuple[ConvertFactor, ...]
    carried: Mapping[str, TensorSource] = field(default_factory=dict)


@dataclass(frozen=True)
class ConvertResult:
    """The written file; `ledger` has nine significant digits, per factor and in total."""

    path: Path
    tensors: tuple[WrittenTensor, ...]
    ledger: JsonObject


@dataclass(frozen=True)
class Pair:
    """A factor in float64."""

    a: Tensor
    b: Tensor


def convert(request: ConvertRequest, out: Path) -> ConvertResult:
    """Write the converted factors into the safetensors file `out`, whose folder exists.

    A factor without a row left (every triplet masked) is not written: it adds nothing.

    Raises:
        ComposeRefusedError: `TENSOR_NOT_FINITE`, `STORE_OVERFLOW`, or what mapping refuses. `out` is as it was.
    """
    with one_blas_thread():
        ranks = {factor.key: _rank(factor) for factor in request.factors}
        made = [factor for factor in request.factors if ranks[factor.key]]
        carried = [Slot(name, "full", item.dtype, item.shape) for name, item in request.carried.items()]
        places = lay_out([*(slot for factor in made for slot in _slots(factor, ranks[factor.key])), *carried])
        written: list[WrittenTensor] = []
        figures: dict[str, tuple[float, float]] = {}
        with new_file(out, places) as file:
            for factor in made:
                exact = _pair(factor)
                stored = _rounded(exact, factor)
                figures[factor.key] = _figures(exact, stored)
                written.append(file.write(places.slots[factor.key, "lora_A"], raw_bytes(stored.a)))
                written.append(file.write(places.slots[factor.key, "lora_B"], raw_bytes(stored.b)))
            for name, source in request.carried.items():
                written.append(file.write(places.slots[name, "full"], memoryview(map_bytes(source))))
    return ConvertResult(out, tuple(written), _ledger(figures))


def _slots(factor: ConvertFactor, rank: int) -> tuple[Slot, Slot]:
    d_out, d_in = factor.sides
    return (
        Slot(factor.key, "lora_A", factor.dtype, (rank, d_in)),
        Slot(factor.key, "lora_B", factor.dtype, (d_out, rank)),
    )


def _rank(factor: ConvertFactor) -> int:
    if factor.rank is not None:
        return factor.rank
    return sum(term.a.shape[0] if term.e is None else int(_kept(term).sum()) for term in factor.terms)


def _kept(term: TermSource) -> Tensor:
    assert term.e is not None, "a triplet"
    return map_tensor(term.e).flatten() != 0


def _pair(factor: ConvertFactor) -> Pair:
    d_out, d_in = factor.sides
    parts = [_term(term, factor.key) for term in factor.terms]
    a = torch.cat([part.a for part in parts]) if parts else torch.zeros(0, d_in, dtype=torch.float64)
    b = torch.cat([part.b for part in parts], dim=1) if parts else torch.zeros(d_out, 0, dtype=torch.float64)
    if factor.into == "a":
        a = a * factor.scale
    else:
        b = b * factor.scale
    if factor.balance:
        b, a = balanced(b, a)
    missing = 0 if factor.rank is None else factor.rank - a.shape[0]
    return Pair(torch.nn.functional.pad(a, (0, 0, 0, missing)), torch.nn.functional.pad(b, (0, missing)))


def _term(term: TermSource, key: str) -> Pair:
    a, b = _finite(term.a, f"{key}.lora_A"), _finite(term.b, f"{key}.lora_B")
    if term.e is not None:
        e, kept = _finite(term.e, f"{key}.lora_E"), _kept(term)
        a, b = (e.reshape(-1, 1) * a)[kept], b[:, kept]
    return Pair(term.sign * a, b)


def _finite(source: TensorSource, name: str) -> Tensor:
    tensor = map_tensor(source)
    check_finite(tensor, name)
    return tensor.to(torch.float64)


def _rounded(exact: Pair, factor: ConvertFactor) -> Pair:
    dtype = FLOATS[factor.dtype]
    stored = Pair(round_once(exact.a, dtype), round_once(exact.b, dtype))
    if not bool(torch.isfinite(stored.a).all() and torch.isfinite(stored.b).all()):
        raise refusal(
            "STORE_OVERFLOW", factor.key, expected=f"values within {factor.dtype}", observed="an overflow",
            hint="Store the result in a wider dtype.",
        )  # fmt: skip
    return stored


def _figures(exact: Pair, stored: Pair) -> tuple[float, float]:
    """``||b a||_F`` and what storing changed of it."""
    error = factor_error(exact.b, exact.a, stored.b.to(torch.float64), stored.a.to(torch.float64))
    return product_norm(exact.b, exact.a), error


def _ledger(figures: Mapping[str, tuple[float, float]]) -> JsonObject:
    return {
        "modules": {key: _entry([pair]) for key, pair in sorted(figures.items())},
        "total": _entry(figures.values()),
    }


def _entry(pairs: Iterable[tuple[float, float]]) -> JsonObject:
    squares = [(norm**2, rounding**2) for norm, rounding in pairs]
    norm, rounding = (float(sum(column)) ** 0.5 for column in zip(*squares, strict=True)) if squares else (0.0, 0.0)
    return {"norm": significant(norm), "rounding": significant(rounding)}
