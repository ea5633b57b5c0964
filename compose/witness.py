"""The additivity witness: one counterexample that no fixed matrix does what a routed function does (R 0x05G)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

import torch
from jaxtyping import Float
from torch import Tensor

PROBES: Final = 8
"""Directions tried of each kind: unit vectors of the input, and the inputs the gates look for."""
Matrix = Float[Tensor, "rows columns"]
Vector = Float[Tensor, "d"]


@dataclass(frozen=True)
class Branch:
    """One candidate's update ``D x = s B (A x)``; a no-op has none."""

    a: Matrix
    b: Matrix
    scale: float

    def __call__(self, x: Vector) -> Vector:
        """The update of one input row."""
        return self.scale * (self.b @ (self.a @ x))


@dataclass(frozen=True)
class Gate:
    """How logits become weights; `rows` [J, d] score the input, or each branch's own output."""

    rows: Matrix | None
    reads: Literal["input", "branch_output"]
    activation: Literal["softmax", "sigmoid", "uniform", "raw"]
    k: int | None
    threshold: float | None
    over_selected: bool


def routed(branches: Sequence[Branch | None], gate: Gate) -> Callable[[Vector], Vector]:
    """``F(x) = sum_j g_j(x) D_j x`` in float64, with the gate's own selection and normalization."""
    width = next(branch.b.shape[0] for branch in branches if branch is not None)

    def function(x: Vector) -> Vector:
        outputs = [x.new_zeros(width) if branch is None else branch(x) for branch in branches]
        weights = _weights(gate, _logits(gate, x, outputs))
        return sum((weight * output for weight, output in zip(weights, outputs, strict=True)), x.new_zeros(width))

    return function


def residual(branches: Sequence[Branch | None], gate: Gate) -> float:
    """The largest ``||F(x1 + x2) - F(x1) - F(x2)||`` over pairs of probes; a fixed matrix has 0."""
    function = routed(branches, gate)
    pairs = combinations(_probes(branches, gate), 2)
    return max((_defect(function, left, right) for left, right in pairs), default=0.0)


def _defect(function: Callable[[Vector], Vector], left: Vector, right: Vector) -> float:
    return float(torch.linalg.vector_norm(function(left + right) - function(left) - function(right)))


def _probes(branches: Sequence[Branch | None], gate: Gate) -> Iterator[Vector]:
    width = next(branch.a.shape[1] for branch in branches if branch is not None)
    yield from torch.eye(width, dtype=torch.float64)[:PROBES]
    if gate.rows is not None and gate.reads == "input":
        yield from (row / torch.linalg.vector_norm(row) for row in gate.rows[:PROBES] if row.any())


def _logits(gate: Gate, x: Vector, outputs: Sequence[Vector]) -> Vector:
    if gate.rows is None:
        return x.new_zeros(len(outputs))
    if gate.reads == "branch_output":
        return torch.stack([row @ output for row, output in zip(gate.rows, outputs, strict=True)])
    return gate.rows @ x


def _weights(gate: Gate, logits: Vector) -> Vector:
    kept = _kept(gate, logits)
    if gate.activation == "softmax":
        chosen = logits.masked_fill(~kept, -torch.inf) if gate.over_selected else logits
        return torch.softmax(chosen, 0).masked_fill(~kept, 0.0)
    if gate.activation == "uniform":
        return kept.to(logits.dtype) / kept.sum()
    values = (torch.sigmoid(logits) if gate.activation == "sigmoid" else logits).masked_fill(~kept, 0.0)
    return values / values.sum() if gate.over_selected else values


def _kept(gate: Gate, logits: Vector) -> Tensor:
    """Ties go to the earlier candidate."""
    kept = torch.ones_like(logits, dtype=torch.bool)
    if gate.k is not None:
        kept = torch.zeros_like(kept)
        kept[torch.argsort(logits, descending=True, stable=True)[: gate.k]] = True
    if gate.threshold is not None:
        kept = logits > gate.threshold
    return kept
