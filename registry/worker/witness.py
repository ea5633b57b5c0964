"""A router with its stored factors, as the additivity witness sees them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from compose.tensors import map_tensor
from compose.witness import Branch, Gate, Matrix, residual
from registry.service.composer import Additivity, RouteOrder
from registry.worker.places import source
from schemas.adapter import FactorManifest
from schemas.base import TensorRef
from schemas.router import RouterManifest


def additivity(order: RouteOrder) -> Additivity:
    """The largest residual over the modules whose gate and factors can be put together.

    A module counts when the gate reads as many features as the module has inputs, or reads the branches themselves.
    """
    found = [(residual(branches, gate), module) for module, branches, gate in _cases(order)]
    value, module = max(found, default=(0.0, None))
    return Additivity(residual=value, module=module, modules=len(found))


def _cases(order: RouteOrder) -> Iterator[tuple[str, list[Branch | None], Gate]]:
    router = order.router
    modules = sorted({factor.module for adapter in order.adapters.values() for factor in adapter.factors})
    rows = _gate_rows(order)
    for position, module in enumerate(modules):
        branches = _branches(order, module)
        block = _block(router, rows, position, len(modules))
        if branches is not None and _fits(router, branches, block):
            yield module, branches, _gate(router, block)


def _fits(router: RouterManifest, branches: list[Branch | None], block: Matrix | None) -> bool:
    """Whether the gate can read what the module has: its input features, or what the branches put out."""
    if block is None:
        return router.gates.activation == "uniform"
    known = next(branch for branch in branches if branch is not None)
    width = known.b.shape[0] if router.feature_source == "branch_output" else known.a.shape[1]
    return block.shape[1] == width


def _gate_rows(order: RouteOrder) -> list[Matrix]:
    """Gate rows in the order of their tensors' names."""
    named = sorted((name, item.value) for name, item in order.router.tensors.items() if item.role == "gate")
    return [row for _, ref in named for row in _read(order, ref).reshape(-1, ref.shape[-1])]


def _block(router: RouterManifest, rows: list[Matrix], position: int, modules: int) -> Matrix | None:
    """The J rows that gate one module: its own where every module has some, else the shared ones."""
    count = router.candidates
    start = position * count if router.extents.layers * router.extents.matrices == modules else 0
    block = rows[start : start + count]
    return torch.stack(block) if len(block) == count and len({row.shape for row in block}) == 1 else None


def _branches(order: RouteOrder, module: str) -> list[Branch | None] | None:
    """One branch a candidate, in order; None when a candidate does not adapt the module."""
    entries = iter(order.router.pool)
    branches: list[Branch | None] = []
    for candidate in range(order.router.candidates):
        if candidate in order.router.no_op_ids:
            branches.append(None)
            continue
        entry = next(entries)
        factors = order.adapters[entry.adapter].factors
        own = [factor for factor in factors if factor.module == module and factor.expert == entry.expert]
        if not own:
            return None
        branches.append(_branch(order, own[0]))
    return branches


def _branch(order: RouteOrder, factor: FactorManifest) -> Branch:
    return Branch(_read(order, factor.a), _read(order, factor.b), factor.scale.value)


def _gate(router: RouterManifest, rows: Matrix | None) -> Gate:
    return Gate(
        rows=rows,
        reads="branch_output" if router.feature_source == "branch_output" else "input",
        activation=router.gates.activation,
        k=router.selection.k,
        threshold=router.selection.threshold,
        over_selected=router.gates.normalization == "selected_row",
    )


def _read(order: RouteOrder, ref: TensorRef) -> Matrix:
    return map_tensor(source(ref, order.extents)).to(torch.float64)
