"""Low-rank experts behind a router, row by row: the operations R 0x01, 0x02, 0x04 and 0x08 have in common.

Shapes: X [T, d_in], A_j [r, d_in], B_j [d_out, r], Z and G [T, J], E_j and D [T, d_out].
"""

from typing import NamedTuple

from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    dot,
    matmul,
    product,
    require_length,
    scale,
    scale_rows,
    softmax,
    softmax_backward,
    transpose,
)


class Expert(NamedTuple):
    """One low-rank update s B A: A [r, d_in], B [d_out, r]."""

    A: Matrix
    B: Matrix
    s: float


class ExpertGradient(NamedTuple):
    """dA, dB and the part of dX that passes this expert."""

    A: Matrix
    B: Matrix
    X: Matrix


def top_k(z: Vector, k: int, *, later_first: bool = False) -> tuple[int, ...]:
    """The k largest logits in score order; equal logits keep candidate order unless `later_first`."""
    if not 1 <= k <= len(z):
        raise FixtureRefusedError("selected degree k", k, f"1..{len(z)}")
    return tuple(sorted(range(len(z)), key=lambda j: (-z[j], -j if later_first else j))[:k])


def selected_softmax(z: Vector, support: tuple[int, ...]) -> Vector:
    """Softmax over the selected logits alone; 0 elsewhere."""
    inside = dict(zip(support, softmax(tuple(z[j] for j in support)), strict=True))
    return tuple(inside.get(j, 0.0) for j in range(len(z)))


def expert_output(X: Matrix, expert: Expert) -> Matrix:
    """E = s X A^T B^T, shape [T, d_out]."""
    return scale(expert.s, product(X, transpose(expert.A), transpose(expert.B)))


def mix(G: Matrix, outputs: tuple[Matrix, ...]) -> Matrix:
    """sum_j Diag(G[:, j]) E_j, shape [T, d_out]."""
    columns = transpose(G)
    require_length("gates a row", columns, len(outputs))
    return add(*(scale_rows(g, E) for g, E in zip(columns, outputs, strict=True)))


def credits(D: Matrix, outputs: tuple[Matrix, ...]) -> Matrix:
    """q[t, j] = <D_t, E_j,t>, shape [T, J]."""
    return tuple(tuple(dot(row, E[t]) for E in outputs) for t, row in enumerate(D))


def router_backward(G: Matrix, q: Matrix) -> Matrix:
    """dZ[t, j] = G[t, j] (q[t, j] - sum_i G[t, i] q[t, i]); a gate of 0 receives nothing."""
    return tuple(softmax_backward(g, credit) for g, credit in zip(G, q, strict=True))


def expert_backward(X: Matrix, expert: Expert, gated: Matrix) -> ExpertGradient:
    """Gradients of one expert for the gate-weighted upstream gradient `gated` [T, d_out]."""
    U = matmul(X, transpose(expert.A))
    dU = scale(expert.s, matmul(gated, expert.B))
    dB = scale(expert.s, matmul(transpose(gated), U))
    return ExpertGradient(matmul(transpose(dU), X), dB, matmul(dU, expert.A))
