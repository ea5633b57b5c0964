"""Factorizations of small dense matrices: Householder QR, one-sided Jacobi SVD, rank, truncation, inverse."""

import math
from typing import NamedTuple

from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    dot,
    identity,
    matmul,
    norm,
    outer,
    scale,
    shape,
    subtract,
    transpose,
)

_SWEEPS = 60


class Svd(NamedTuple):
    """A = U diag(sigma) V^T: U [m, q], sigma descending [q], V [n, q], q = min(m, n)."""

    u: Matrix
    sigma: Vector
    v: Matrix


def qr(a: Matrix) -> tuple[Matrix, Matrix]:
    """Householder QR: A = Q R with Q [m, m] orthogonal and R [m, n] upper triangular."""
    rows, columns = shape(a)
    q, r = identity(rows), a
    for k in range(min(rows - 1, columns)):
        x = tuple(row[k] if i >= k else 0.0 for i, row in enumerate(r))
        if (length := norm(x)) == 0.0:
            continue
        v = tuple(e + math.copysign(length, x[k]) if i == k else e for i, e in enumerate(x))
        reflector = subtract(identity(rows), scale(2.0 / dot(v, v), outer(v, v)))
        q, r = matmul(q, reflector), matmul(reflector, r)
    return q, r


def _rotate(p: Vector, q: Vector, c: float, s: float) -> tuple[Vector, Vector]:
    first = tuple(c * x - s * y for x, y in zip(p, q, strict=True))
    return first, tuple(s * x + c * y for x, y in zip(p, q, strict=True))


def _sweep(columns: list[Vector], right: list[Vector]) -> bool:
    """Rotate every pair of columns once; true while some pair was not yet orthogonal."""
    moved = False
    for i in range(len(columns)):
        for j in range(i + 1, len(columns)):
            alpha, beta = dot(columns[i], columns[i]), dot(columns[j], columns[j])
            gamma = dot(columns[i], columns[j])
            if abs(gamma) <= 1e-15 * math.sqrt(alpha * beta) or gamma == 0.0:
                continue
            moved = True
            zeta = (beta - alpha) / (2.0 * gamma)
            t = math.copysign(1.0, zeta) / (abs(zeta) + math.hypot(1.0, zeta))
            c = 1.0 / math.hypot(1.0, t)
            columns[i], columns[j] = _rotate(columns[i], columns[j], c, c * t)
            right[i], right[j] = _rotate(right[i], right[j], c, c * t)
    return moved


def _complete(columns: list[Vector], size: int, count: int) -> list[Vector]:
    """Extend orthonormal columns to `count` of them by Gram-Schmidt over the unit vectors."""
    for unit in identity(size):
        if len(columns) >= count:
            break
        rest = unit
        for column in columns * 2:
            overlap = dot(column, rest)
            rest = tuple(x - overlap * y for x, y in zip(rest, column, strict=True))
        if (length := norm(rest)) > 1e-8:
            columns.append(tuple(x / length for x in rest))
    return columns


def svd(a: Matrix) -> Svd:
    """One-sided Jacobi SVD; signs make the largest entry of each left vector positive (ties: the first)."""
    rows, columns = shape(a)
    if rows < columns:
        flipped = svd(transpose(a))
        return Svd(flipped.v, flipped.sigma, flipped.u)
    work, right = list(transpose(a)), list(identity(columns))
    for _ in range(_SWEEPS):
        if not _sweep(work, right):
            break
    order = sorted(range(columns), key=lambda k: -norm(work[k]))
    sigma = tuple(norm(work[k]) for k in order)
    floor = 1e-14 * max(sigma[0], 1e-300)
    left = [tuple(x / s for x in work[k]) for k, s in zip(order, sigma, strict=True) if s > floor]
    left = _complete(left, rows, columns)
    signs = [math.copysign(1.0, max(u, key=lambda x: round(abs(x), 12))) for u in left]
    u = transpose(tuple(tuple(g * x for x in column) for g, column in zip(signs, left, strict=True)))
    v = transpose(tuple(tuple(g * x for x in right[k]) for g, k in zip(signs, order, strict=True)))
    return Svd(u, sigma, v)


def rank(a: Matrix, tolerance: float = 1e-12) -> int:
    """The number of singular values above `tolerance` times the largest."""
    sigma = svd(a).sigma
    return sum(1 for s in sigma if s > tolerance * sigma[0])


def truncated(a: Matrix, keep: int) -> tuple[Matrix, Matrix]:
    """The best rank-`keep` factors (B = U_k diag(sigma_k) [m, k], A = V_k^T [k, n])."""
    u, sigma, v = svd(a)
    if not 0 < keep <= len(sigma):
        raise FixtureRefusedError("retained rank", keep, f"1..{len(sigma)}")
    b = tuple(tuple(x * s for x, s in zip(row[:keep], sigma, strict=False)) for row in u)
    return b, transpose(v)[:keep]


def inverse(a: Matrix) -> Matrix:
    """A^-1 by Gauss-Jordan with row pivoting; a singular matrix is refused."""
    n, columns = shape(a)
    if n != columns:
        raise FixtureRefusedError("inverse", [n, columns], "a square matrix")
    work = [list(row + unit) for row, unit in zip(a, identity(n), strict=True)]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(work[i][k]))
        if abs(work[pivot][k]) < 1e-14:
            raise FixtureRefusedError("inverse", "a singular matrix", "full rank")
        work[k], work[pivot] = work[pivot], work[k]
        work[k] = [x / work[k][k] for x in work[k]]
        for i in range(n):
            if i != k:
                work[i] = [x - work[i][k] * y for x, y in zip(work[i], work[k], strict=True)]
    return tuple(tuple(row[n:]) for row in work)
