"""The effect of an adapter manifest on a model's parameters, written down from the manifest's conventions alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.adapter import AdapterManifest, FactorManifest
from schemas.base import TensorRef

Array = NDArray[np.float64]
Read = Callable[[TensorRef], NDArray[Any]]


def merged(
    adapter: AdapterManifest, read: Read, before: dict[str, Array], loaded: Callable[[str], str]
) -> dict[str, Array]:
    """Every parameter the adapter changes, merged.

    Args:
        read: a tensor's numbers.
        before: the base's parameters by name.
        loaded: the name in memory of what the base stores under another.
    """
    after: dict[str, Array] = {}
    for factor in adapter.factors:
        module = loaded(factor.module)
        name = module if module in before else f"{module}.weight"
        after[name] = _weight(factor, read, before[name])
        if "bias" in factor.extra:
            bias = f"{module}.bias"
            after[bias] = before[bias] + factor.scale.value * read(factor.extra["bias"]).astype(np.float64)
    for item in adapter.full_replacements:
        name, _, part = item.name.partition("#")
        if part == "rows":
            after[loaded(name)] = before[loaded(name)].copy()
    rows = {item.name: read(item.value) for item in adapter.full_replacements}
    for name, values in rows.items():
        table, _, part = name.partition("#")
        if part == "values":
            after[loaded(table)][rows[f"{table}#rows"]] = values
        elif not part:
            after[loaded(name)] = values.astype(np.float64)
    return after


def _weight(factor: FactorManifest, read: Read, weight: Array) -> Array:
    delta = factor.scale.value * _product(factor, read, weight.shape)
    if "magnitude" not in factor.extra:
        return weight + delta
    # The norm of what gives one output: over the inputs, whichever axis of the weight they are.
    magnitude = read(factor.extra["magnitude"]).astype(np.float64).reshape(-1)
    outputs = 1 if factor.order == "(B@A)^T" else 0
    shape = tuple(-1 if axis == outputs else 1 for axis in range(weight.ndim))
    axes = tuple(axis for axis in range(weight.ndim) if axis != outputs)
    norm = np.sqrt(np.square(weight + delta).sum(axis=axes, keepdims=True))
    scaled: Array = magnitude.reshape(shape) / norm * (weight + delta)
    return scaled


def _product(factor: FactorManifest, read: Read, shape: tuple[int, ...]) -> Array:
    a, b = read(factor.a).astype(np.float64), read(factor.b).astype(np.float64)
    if "E" in factor.extra:
        a = a * read(factor.extra["E"]).astype(np.float64)
    if "diag" in factor.extra:
        b = b * read(factor.extra["diag"]).astype(np.float64)
    if a.ndim == 4:
        kernels: Array = np.einsum("or,rikl->oikl", b[:, :, 0, 0], a)
        return kernels
    if factor.order == "B[o,r,e]A[e,r,i]":
        experts = shape[0]
        outer, inner = a.reshape(experts, -1, a.shape[1]), b.reshape(b.shape[0], -1, experts)
        axes = "eoi" if shape[1:] == (b.shape[0], a.shape[1]) else "eio"
        experts_delta: Array = np.einsum(f"ore,eri->{axes}", inner, outer)
        return experts_delta
    product: Array = b @ a
    return product.T if factor.order == "(B@A)^T" else product
