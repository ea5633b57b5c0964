"""One adapted linear map Y = X (W + s B A)^T, shared by the oracles of this document.

Shapes: W [d_out, d_in]; A [r, d_in]; B [d_out, r]; X [T, d_in]; G = dL/dY [T, d_out].
"""

import math

from oracles.differences import Difference, Point, compare
from oracles.errors import FixtureRefusedError
from oracles.linalg import svd
from oracles.matrix import (
    Matrix,
    add,
    elementwise,
    inner,
    matmul,
    require_shape,
    scale,
    scale_rows,
    shape,
    transpose,
)


def require_factors(W: Matrix, A: Matrix, B: Matrix) -> None:
    """Refuse factors whose product has another shape than W."""
    d_out, d_in = shape(W)
    require_shape("A", A, (len(A), d_in))
    require_shape("B", B, (d_out, len(A)))


def effective(W: Matrix, A: Matrix, B: Matrix, s: float) -> Matrix:
    """W + s B A."""
    return add(W, scale(s, matmul(B, A)))


def output(X: Matrix, W: Matrix) -> Matrix:
    """X W^T."""
    return matmul(X, transpose(W))


def live(X: Matrix, W: Matrix, A: Matrix, B: Matrix, s: float) -> Matrix:
    """X W^T + s (X A^T) B^T: the branch is never formed as one dense weight."""
    return add(output(X, W), scale(s, output(output(X, A), B)))


def backward(W: Matrix, A: Matrix, B: Matrix, s: float, X: Matrix, G: Matrix) -> dict[str, Matrix]:
    """dX = G W + s (G B) A, dA = s (G B)^T X, dB = s G^T (X A^T)."""
    GB = matmul(G, B)
    return {
        "X": add(matmul(G, W), scale(s, matmul(GB, A))),
        "A": scale(s, matmul(transpose(GB), X)),
        "B": scale(s, matmul(transpose(G), output(X, A))),
    }


def held_against_differences(W: Matrix, A: Matrix, B: Matrix, s: float, X: Matrix, G: Matrix) -> Difference:
    """`backward` against central differences of L = <G, Y> in X, A and B."""

    def loss(point: Point) -> float:
        return inner(G, live(point["X"], W, point["A"], point["B"], s))

    return compare(loss, {"X": X, "A": A, "B": B}, backward(W, A, B, s, X, G))


def spectral_factors(E: Matrix, r: int, s: float) -> tuple[Matrix, Matrix]:
    """B = U_r (Sigma_r / s)^(1/2) and A = (Sigma_r / s)^(1/2) V_r^T, so that s B A is the best rank-r part of E."""
    u, sigma, v = svd(E)
    if not 0 < r <= len(sigma):
        raise FixtureRefusedError("rank", r, f"1..{len(sigma)}")
    if s <= 0.0:
        raise FixtureRefusedError("scale", s, "a positive scale")
    roots = tuple(math.sqrt(x / s) for x in sigma[:r])
    B = tuple(tuple(x * root for x, root in zip(row[:r], roots, strict=True)) for row in u)
    return B, scale_rows(roots, transpose(v)[:r])


def rounded(W: Matrix, step: float) -> Matrix:
    """Q(W): every entry to the nearest multiple of `step`, halves to the even multiple."""
    if step <= 0.0:
        raise FixtureRefusedError("step", step, "a positive step")
    return elementwise(lambda x: step * round(x / step), W)
