"""Small dense float64 matrices as tuples of rows.

A matrix of shape [m, n] is a tuple of m rows of n floats; a vector of shape [n] is a tuple of n floats. Sums use
`math.fsum`, whose result does not depend on the order of terms or on the Python version.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from oracles.errors import FixtureRefusedError

Vector: TypeAlias = tuple[float, ...]
Matrix: TypeAlias = tuple[Vector, ...]


def matrix(rows: Sequence[Sequence[float]]) -> Matrix:
    """Freeze rows into a matrix; ragged, empty or non-finite input is refused."""
    frozen = tuple(tuple(float(entry) for entry in row) for row in rows)
    if not frozen or not frozen[0] or any(len(row) != len(frozen[0]) for row in frozen):
        raise FixtureRefusedError("matrix", [len(row) for row in frozen], "rows of one positive length")
    if not all(math.isfinite(entry) for row in frozen for entry in row):
        raise FixtureRefusedError("matrix", "a non-finite entry", "finite entries")
    return frozen


def shape(a: Matrix) -> tuple[int, int]:
    """[rows, columns]; a ragged or empty matrix is refused."""
    widths = {len(row) for row in a}
    if len(widths) != 1 or widths == {0}:
        raise FixtureRefusedError("matrix", [len(row) for row in a], "rows of one positive length")
    return len(a), widths.pop()


def require_shape(name: str, a: Matrix, expected: tuple[int, int]) -> None:
    """Refuse a matrix of another shape, by name."""
    if shape(a) != expected:
        raise FixtureRefusedError(name, list(shape(a)), f"shape {list(expected)}")


def require_length(name: str, a: Sequence[object], expected: int) -> None:
    """Refuse a vector or list of another length, by name."""
    if len(a) != expected:
        raise FixtureRefusedError(name, f"length {len(a)}", f"length {expected}")


def zeros(rows: int, columns: int) -> Matrix:
    """0 of shape [rows, columns]."""
    return tuple((0.0,) * columns for _ in range(rows))


def diagonal(entries: Sequence[float]) -> Matrix:
    """diag(entries), shape [n, n]."""
    return tuple(tuple(float(d) if i == j else 0.0 for j in range(len(entries))) for i, d in enumerate(entries))


def identity(n: int) -> Matrix:
    """I, shape [n, n]."""
    return diagonal((1.0,) * n)


def transpose(a: Matrix) -> Matrix:
    """A^T, shape [n, m]."""
    shape(a)
    return tuple(zip(*a, strict=True))


def dot(u: Vector, v: Vector) -> float:
    """sum_i u_i v_i of two vectors of one length."""
    require_length("dot product", v, len(u))
    return math.fsum(x * y for x, y in zip(u, v, strict=True))


def matmul(a: Matrix, b: Matrix) -> Matrix:
    """A B for shapes [m, k] and [k, n]."""
    if shape(a)[1] != shape(b)[0]:
        raise FixtureRefusedError("matrix product", [shape(a), shape(b)], "equal inner dimensions")
    columns = transpose(b)
    return tuple(tuple(dot(row, column) for column in columns) for row in a)


def product(first: Matrix, *others: Matrix) -> Matrix:
    """A B C ... from left to right."""
    result = first
    for other in others:
        result = matmul(result, other)
    return result


def apply(a: Matrix, x: Vector) -> Vector:
    """A x for shapes [m, n] and [n]."""
    shape(a)
    return tuple(dot(row, x) for row in a)


def _entrywise(a: Matrix, b: Matrix, operation: Callable[[float, float], float]) -> Matrix:
    require_shape("second operand", b, shape(a))
    return tuple(
        tuple(operation(x, y) for x, y in zip(row, other, strict=True)) for row, other in zip(a, b, strict=True)
    )


def add(first: Matrix, *others: Matrix) -> Matrix:
    """A + B + ..., all of one shape, from left to right."""
    result = first
    for other in others:
        result = _entrywise(result, other, lambda x, y: x + y)
    return result


def subtract(a: Matrix, b: Matrix) -> Matrix:
    """A - B, one shape."""
    return _entrywise(a, b, lambda x, y: x - y)


def hadamard(a: Matrix, b: Matrix) -> Matrix:
    """A * B entry by entry, one shape."""
    return _entrywise(a, b, lambda x, y: x * y)


def scale(factor: float, a: Matrix) -> Matrix:
    """s A."""
    return elementwise(lambda x: factor * x, a)


def scale_rows(factors: Vector, a: Matrix) -> Matrix:
    """diag(f) A for f of length m."""
    require_length("row factors", factors, len(a))
    return tuple(tuple(f * x for x in row) for f, row in zip(factors, a, strict=True))


def elementwise(function: Callable[[float], float], a: Matrix) -> Matrix:
    """f(A) entry by entry."""
    return tuple(tuple(function(x) for x in row) for row in a)


def outer(u: Vector, v: Vector) -> Matrix:
    """u v^T, shape [len u, len v]."""
    return tuple(tuple(x * y for y in v) for x in u)


def hstack(*blocks: Matrix) -> Matrix:
    """[A B ...], blocks of one height."""
    for block in blocks:
        require_length("block height", block, len(blocks[0]))
    return tuple(tuple(x for row in rows for x in row) for rows in zip(*blocks, strict=True))


def vstack(*blocks: Matrix) -> Matrix:
    """[A; B; ...], blocks of one width."""
    stacked = tuple(row for block in blocks for row in block)
    shape(stacked)
    return stacked


def norm(u: Vector) -> float:
    """|u|_2."""
    return math.sqrt(dot(u, u))


def row_norms(a: Matrix) -> Vector:
    """|a_i|_2 for every row i (`dim=1`)."""
    return tuple(norm(row) for row in a)


def inner(a: Matrix, b: Matrix) -> float:
    """<A, B> = sum_ij A_ij B_ij."""
    return math.fsum(x for row in hadamard(a, b) for x in row)


def squared_frobenius(a: Matrix) -> float:
    """|A|_F^2."""
    return inner(a, a)


def frobenius(a: Matrix) -> float:
    """|A|_F."""
    return math.sqrt(squared_frobenius(a))


def max_abs(a: Matrix) -> float:
    """max_ij |A_ij|."""
    return max(abs(x) for row in a for x in row)


def distance(a: Matrix, b: Matrix) -> float:
    """max_ij |A_ij - B_ij|."""
    return max_abs(subtract(a, b))


def softmax(z: Vector) -> Vector:
    """exp(z_i - max z) / sum_j exp(z_j - max z)."""
    if not z:
        raise FixtureRefusedError("softmax", "no logits", "at least one logit")
    weights = tuple(math.exp(x - max(z)) for x in z)
    total = math.fsum(weights)
    return tuple(w / total for w in weights)


def softmax_backward(p: Vector, gradient: Vector) -> Vector:
    """dL/dz_i = p_i (g_i - sum_j p_j g_j) for p = softmax(z) and g = dL/dp."""
    mean = dot(p, gradient)
    return tuple(x * (g - mean) for x, g in zip(p, gradient, strict=True))
