"""Plain LoRA: the form that a reader of alpha / r alone understands, wherever servers fuse layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from registry.errors import Problem
from registry.formats.base.modules import Layer, layers
from registry.service.composer import FactorOrder
from registry.service.recipes import (
    COMPACT,
    TRIPLETS,
    Making,
    Recipe,
    key_of,
    like,
    matrix_problems,
    order_of,
    problem,
    unit_scale,
)
from schemas.adapter import AdapterManifest, FactorManifest
from schemas.base import BaseManifest, TensorRef
from schemas.errors import refuse

FUSED: Final = (frozenset({"q_proj", "k_proj", "v_proj"}), frozenset({"query", "key", "value"}),
                frozenset({"gate_proj", "up_proj"}))  # fmt: skip
"""Layers that servers hold as one: an adapter of a part needs zeros for the rest."""
LINEAR: Final = frozenset({"linear", "conv1d"})


def plain_lora(parent: AdapterManifest, base: BaseManifest) -> Recipe:
    """Scale baked into b, alpha = r, one rank by zero padding, one dtype, zeros where a leaf name or fused group asks.

    Every linear layer of the base that has the leaf name of an adapted one, or of its fused group, gets factors, so
    that leaf names alone say which modules are adapted. Triplets of AdaLoRA become pairs on the way.

    Raises:
        RefusedError: `NOT_PLAIN_LORA`, `FACTORS_NOT_PLAIN`.
    """
    refuse([*_whole_problems(parent), *_site_problems(parent), *matrix_problems(parent, TRIPLETS)])
    rank = max(1, *(factor.rank for factor in parent.factors))
    dtype = _one_dtype(parent)
    makings = [_baked(factor, rank, dtype) for factor in parent.factors]
    makings += [_zeros(base.digest, name, layer, rank, dtype) for name, layer in _missing(parent, layers(base))]
    return Recipe(base=parent.base, makings=tuple(makings), family="lora", full_replacements=())


def _baked(factor: FactorManifest, rank: int, dtype: str) -> Making:
    order = replace(order_of(factor), dtype=dtype, scale=factor.scale.value, rank=rank)
    return Making(order, like(factor, unit_scale, "lora"))


def _zeros(base: str, module: str, layer: Layer, rank: int, dtype: str) -> Making:
    transposed = layer.kind == "conv1d"
    d_out, d_in = layer.shape[::-1] if transposed else layer.shape

    def complete(a: TensorRef, b: TensorRef) -> FactorManifest:
        return FactorManifest(
            base=base,
            module=module,
            a=a,
            b=b,
            order="(B@A)^T" if transposed else "B@A",
            rank=rank,
            scale=unit_scale(rank),
            source="lora",
        )

    return Making(FactorOrder(module, (), (d_out, d_in), dtype, rank=rank), complete)


def _missing(parent: AdapterManifest, known: Mapping[str, Layer]) -> Iterator[tuple[str, Layer]]:
    """Layers without factors whose leaf name is that of an adapted one, or belongs to the same fused group."""
    adapted = {factor.module for factor in parent.factors}
    leaves = {leaf(name) for name in adapted if known[name].kind in LINEAR}
    wanted = leaves.union(*(group for group in FUSED if group & leaves))
    for name, layer in sorted(known.items()):
        if name not in adapted and layer.kind in LINEAR and leaf(name) in wanted and not layer.optional:
            yield name, layer


def leaf(module: str) -> str:
    """The last part of a module's name, which is what target_modules and fused groups go by."""
    return module.rpartition(".")[2]


def _one_dtype(parent: AdapterManifest) -> str:
    """The common dtype; float32 for a mixture of 16-bit ones, which has room for both."""
    found = {ref.dtype for factor in parent.factors for ref in (factor.a, factor.b)}
    if len(found) == 1:
        return found.pop()
    return "F64" if "F64" in found else "F32"


def _whole_problems(parent: AdapterManifest) -> list[Problem]:
    found = []
    if parent.payload != "portable" or parent.initializer != "none":
        hint = "Convert it to portable first (`registry convert REF --to portable --initial SNAPSHOT`)."
        observed = f"a {parent.payload} adapter, initializer {parent.initializer}"
        found.append(problem("NOT_PLAIN_LORA", ("payload",), "factors of the original base", observed, hint))
    triplets = any("E" in factor.extra for factor in parent.factors)
    for item in parent.full_replacements:
        hint = "Export it with the profile peft, or make a dense release; a trained tensor is never dropped."
        hint = COMPACT if triplets else hint
        path = ("full_replacements", item.name)
        found.append(problem("NOT_PLAIN_LORA", path, "factors alone", "a tensor replaced as a whole", hint))
    return found


def _site_problems(parent: AdapterManifest) -> list[Problem]:
    hint = "Plain LoRA has one pair a module; serve routed experts with the program they were trained for."
    return [
        problem("NOT_PLAIN_LORA", ("factors", key_of(factor)), "one pair for the module", "one of several", hint)
        for factor in parent.factors
        if factor.site[1:] != (-1, -1, "")
    ]
