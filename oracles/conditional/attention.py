"""What the routed-attention and depth oracles of C share: stable selection, one attention row and its backward.

Shapes: q [d_h], K, V [S_kv, d_h], a [S_kv], u [d_h]; `visible` names the sources a destination may read.
"""

import math
from collections.abc import Sequence

from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    apply,
    dot,
    outer,
    require_length,
    scale,
    softmax,
    softmax_backward,
    transpose,
)


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0.0 else math.exp(x) / (1.0 + math.exp(x))


def stable_top(scores: Sequence[float], k: int, *, later_first: bool = False) -> tuple[int, ...]:
    """The k largest in score order; equal scores keep the lower id first, unless `later_first`."""
    if not 1 <= k <= len(scores):
        raise FixtureRefusedError("selected count", k, f"1..{len(scores)}")
    return tuple(sorted(range(len(scores)), key=lambda i: (-scores[i], -i if later_first else i))[:k])


def row_times(x: Vector, W: Matrix) -> Vector:
    """x W for a row x [m] and W [m, n]."""
    return apply(transpose(W), x)


def attend(q: Vector, K: Matrix, V: Matrix, visible: Sequence[bool]) -> tuple[Vector, Vector]:
    """a = softmax over the visible sources of q K^T / sqrt(d_h), 0 elsewhere, and u = a V."""
    require_length("visible sources", visible, len(K))
    seen = tuple(j for j, v in enumerate(visible) if v)
    if not seen:
        raise FixtureRefusedError("visible sources", "none", "at least one")
    scores = tuple(dot(q, K[j]) / math.sqrt(len(q)) for j in seen)
    inside = dict(zip(seen, softmax(scores), strict=True))
    a = tuple(inside.get(j, 0.0) for j in range(len(K)))
    return a, row_times(a, V)


def attend_backward(q: Vector, K: Matrix, V: Matrix, a: Vector, grad_u: Vector) -> tuple[Vector, Matrix, Matrix]:
    """grad q, grad K and grad V of one attention row (C 0x02D)."""
    root = math.sqrt(len(q))
    grad_s = tuple(g / root for g in softmax_backward(a, apply(V, grad_u)))
    return row_times(grad_s, K), outer(grad_s, q), outer(a, grad_u)


def weighted_sum(weights: Sequence[float], rows: Sequence[Vector]) -> Vector:
    """sum_i w_i x_i for rows of one length."""
    require_length("weights", weights, len(rows))
    return row_times(tuple(weights), tuple(rows))


def scaled(factor: float, x: Vector) -> Vector:
    """s x."""
    return scale(factor, (x,))[0]
