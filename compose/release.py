"""Dense releases: weights of a base become ``W + sum s B A`` where they lie in a copied file, tile by tile.

A tile of rows is read, changed in float64, rounded once to the weight's own dtype and written back, so that memory does
not grow with the weight. DoRA's rows become ``m (W + s B A) / ||W + s B A||_row`` (V 0x05).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod, sqrt
from typing import Final

import torch
from torch import Tensor

from compose.errors import refusal
from compose.fields import energy
from compose.request import TensorSource
from compose.tensors import FLOATS, all_finite, check_finite, map_tensor, raw_bytes, round_once
from compose.threads import one_blas_thread, start_worker
from schemas.adapter import Order
from schemas.base import TensorRef
from schemas.digests import DTYPE_BYTES, TensorHasher

TILE: Final = 1 << 20
"""Elements in work at once: 8 MiB of float64."""


@dataclass(frozen=True)
class DeltaSource:
    """One factor of an adapter: ``scale * b diag(e) a`` in its `order`, normalised by `magnitude` [d_out] for DoRA."""

    module: str
    a: TensorSource
    b: TensorSource
    scale: float
    order: Order = "B@A"
    e: TensorSource | None = None
    magnitude: TensorSource | None = None


@dataclass(frozen=True)
class Patch:
    """A weight to change: `source` is its place in the file that is written, which holds the base's numbers still.

    `whole` are numbers of the same shape that take its place.
    """

    name: str
    source: TensorSource
    deltas: tuple[DeltaSource, ...] = ()
    whole: TensorSource | None = None


@dataclass(frozen=True)
class Patched:
    """A changed weight, the norm of its change before rounding, and what rounding took from ``W + D``."""

    name: str
    tensor: TensorRef
    change: float
    rounding: float


@dataclass(frozen=True)
class _Product:
    """``left [rows, r] @ right [r, columns]`` for the rows from `start` of a weight seen as a matrix."""

    start: int
    left: Tensor
    right: Tensor
    magnitude: Tensor | None

    @property
    def stop(self) -> int:
        """The row behind the last."""
        return self.start + self.left.shape[0]


def release(patches: tuple[Patch, ...], workers: int) -> tuple[Patched, ...]:
    """Change every weight in place.

    Raises:
        ComposeRefusedError: `TENSOR_NOT_FINITE`, `STORE_OVERFLOW`, `ROW_NORM_ZERO`, `FACTOR_SHAPE`; the file is then
            half changed and of no use.
    """
    with one_blas_thread(), ThreadPoolExecutor(workers, initializer=start_worker) as pool:
        return tuple(pool.map(_apply, patches))


def _apply(patch: Patch) -> Patched:
    source = patch.source
    rows, columns = _sides(patch)
    products = [product for delta in patch.deltas for product in _products(delta, patch)]
    whole = None if patch.whole is None else _double(patch.whole, patch.name, "full").reshape(rows, columns)
    hasher = TensorHasher(source.dtype, source.shape)
    change = rounding = 0.0
    descriptor = os.open(source.path, os.O_RDWR)
    try:
        height = max(1, TILE // columns)
        for start in range(0, rows, height):
            stop = min(start + height, rows)
            offset = source.offset + start * columns * DTYPE_BYTES[source.dtype]
            weight = _read(descriptor, offset, (stop - start, columns), source.dtype)
            exact = _changed(weight, products, start, patch.name) if whole is None else whole[start:stop]
            stored = round_once(exact, FLOATS[source.dtype])
            if not all_finite(stored):
                raise _overflow(patch)
            change, rounding = change + energy(exact - weight), rounding + energy(exact - stored)
            data = raw_bytes(stored)
            hasher.update(data)
            _write(descriptor, offset, data)
    finally:
        os.close(descriptor)
    ref = TensorRef(tensor=hasher.finish(), dtype=source.dtype, shape=source.shape)
    return Patched(patch.name, ref, sqrt(change), sqrt(rounding))


def _sides(patch: Patch) -> tuple[int, int]:
    """The weight as a matrix: stacked experts under each other, kernels flat."""
    shape = patch.source.shape
    stacked = any(delta.order == "B[o,r,e]A[e,r,i]" for delta in patch.deltas)
    kept = 2 if stacked and len(shape) == 3 else 1
    return prod(shape[:kept]), prod(shape[kept:])


def _changed(weight: Tensor, products: list[_Product], start: int, name: str) -> Tensor:
    """The rows from `start` with every delta that reaches them, in float64."""
    exact = weight.clone()
    stop = start + weight.shape[0]
    for product in products:
        low, high = max(start, product.start), min(stop, product.stop)
        if low < high:
            part = exact[low - start : high - start]
            own = slice(low - product.start, high - product.start)
            part += product.left[own] @ product.right
            if product.magnitude is not None:
                part *= (product.magnitude[own] / _norms(part, low, name))[:, None]
    return exact


def _norms(rows: Tensor, start: int, name: str) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    bad = (~(torch.isfinite(norms) & (norms > 0))).nonzero()
    if len(bad):
        row = int(bad[0])
        raise refusal(
            "ROW_NORM_ZERO", name, start + row, expected="a positive, finite norm of W + s B A",
            observed=str(float(norms[row])), hint="A row without direction takes no magnitude; train it again.",
        )  # fmt: skip
    return norms


def _products(delta: DeltaSource, patch: Patch) -> Iterator[_Product]:
    a, b = _double(delta.a, delta.module, "lora_A"), _double(delta.b, delta.module, "lora_B")
    b = b * delta.scale
    if delta.order == "B[o,r,e]A[e,r,i]":
        yield from _stacked(a, b, patch, delta)
        return
    a, b = a.flatten(1), b.flatten(1)
    if delta.e is not None:
        a = a * _double(delta.e, delta.module, "lora_E").reshape(-1, 1)
    left, right = (a.T.contiguous(), b.T.contiguous()) if delta.order == "(B@A)^T" else (b, a)
    magnitude = None
    if delta.magnitude is not None:
        magnitude = _double(delta.magnitude, delta.module, "magnitude").flatten()
    _check_shape(delta, patch, (left.shape[0], right.shape[1]), magnitude)
    yield _Product(0, left, right, magnitude)


def _stacked(a: Tensor, b: Tensor, patch: Patch, delta: DeltaSource) -> Iterator[_Product]:
    """``D[e] = b[:, :, e] a[e]``, turned where a parameter is stored input first; a square one is not."""
    shape = patch.source.shape
    experts = shape[0] if len(shape) == 3 else 1
    a, b = a.reshape(experts, -1, a.shape[1]), b.reshape(b.shape[0], -1, experts)
    sides = (b.shape[0], a.shape[2])
    turned = shape[-2:] == sides[::-1] and sides[0] != sides[1]
    rows, columns = sides[::-1] if turned else sides
    _check_shape(delta, patch, (experts * rows, columns), None)
    for expert in range(experts):
        left, right = b[:, :, expert], a[expert]
        if turned:
            left, right = right.T, left.T
        yield _Product(expert * rows, left.contiguous(), right.contiguous(), None)


def _check_shape(delta: DeltaSource, patch: Patch, found: tuple[int, int], magnitude: Tensor | None) -> None:
    wanted = _sides(patch)
    if found != wanted or (magnitude is not None and magnitude.shape[0] != wanted[0]):
        raise refusal(
            "FACTOR_SHAPE", patch.name, delta.module, expected=f"a delta of {wanted[0]} x {wanted[1]}",
            observed=f"{found[0]} x {found[1]}", hint="Check order and shapes of the factor against the base's weight.",
        )  # fmt: skip


def _double(source: TensorSource, module: str, role: str) -> Tensor:
    tensor = map_tensor(source)
    check_finite(tensor, f"{module}.{role}")
    return tensor.to(torch.float64)


def _read(descriptor: int, offset: int, shape: tuple[int, int], dtype: str) -> Tensor:
    buffer = bytearray(prod(shape) * DTYPE_BYTES[dtype])
    view, place = memoryview(buffer), offset
    while view:
        count = os.preadv(descriptor, [view], place)
        if not count:
            raise EOFError(f"the copied file ends at byte {place}")
        view, place = view[count:], place + count
    return torch.frombuffer(buffer, dtype=FLOATS[dtype]).reshape(shape).to(torch.float64)


def _write(descriptor: int, offset: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _overflow(patch: Patch) -> Exception:
    return refusal(
        "STORE_OVERFLOW", patch.name, expected=f"values within {patch.source.dtype}", observed="an overflow or NaN",
        hint="Release on a base of a wider dtype, or correct the base.",
    )  # fmt: skip
