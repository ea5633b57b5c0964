"""Laws of the float64 matrix core and hand-computed cases."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.differences import compare
from oracles.errors import FixtureRefusedError
from oracles.linalg import inverse, qr, rank, svd, truncated
from oracles.matrix import (
    Matrix,
    add,
    diagonal,
    distance,
    frobenius,
    hstack,
    identity,
    inner,
    matmul,
    matrix,
    outer,
    shape,
    softmax,
    softmax_backward,
    squared_frobenius,
    subtract,
    transpose,
    vstack,
)

ENTRY = st.integers(-64, 64).map(lambda n: n / 8)


@st.composite
def matrices(draw: st.DrawFn, rows: int | None = None, columns: int | None = None) -> Matrix:
    m = rows or draw(st.integers(1, 4))
    n = columns or draw(st.integers(1, 4))
    return tuple(tuple(draw(st.lists(ENTRY, min_size=n, max_size=n))) for _ in range(m))


def test_a_product_known_by_hand() -> None:
    assert matmul(((1.0, 2.0), (3.0, 4.0)), ((5.0,), (6.0,))) == ((17.0,), (39.0,))


def test_a_ragged_or_infinite_matrix_is_refused() -> None:
    wrong: list[list[list[float]]] = [[[1.0], [1.0, 2.0]], [], [[]], [[math.inf]]]
    for rows in wrong:
        with pytest.raises(FixtureRefusedError):
            matrix(rows)


def test_operands_of_other_shapes_are_refused() -> None:
    wide, tall = ((1.0, 2.0),), ((1.0,), (2.0,))
    for operation in (add, subtract, distance, hstack, vstack):
        with pytest.raises(FixtureRefusedError):
            operation(wide, tall)
    with pytest.raises(FixtureRefusedError):
        matmul(wide, wide)


@given(matrices(2, 3), matrices(3, 2), matrices(2, 4))
def test_the_product_is_associative_and_transposes_in_reverse(a: Matrix, b: Matrix, c: Matrix) -> None:
    assert distance(matmul(matmul(a, b), c), matmul(a, matmul(b, c))) < 1e-9
    assert transpose(matmul(a, b)) == matmul(transpose(b), transpose(a))


@given(matrices(2, 3), matrices(2, 3), matrices(3, 2), matrices(3, 2))
def test_blocks_multiply_without_cross_terms(b1: Matrix, b2: Matrix, a1: Matrix, a2: Matrix) -> None:
    assert distance(matmul(hstack(b1, b2), vstack(a1, a2)), add(matmul(b1, a1), matmul(b2, a2))) < 1e-12


@given(matrices())
def test_qr_reconstructs_with_orthogonal_q_and_triangular_r(a: Matrix) -> None:
    q, r = qr(a)
    assert distance(matmul(q, r), a) < 1e-12
    assert distance(matmul(transpose(q), q), identity(len(a))) < 1e-12
    assert all(abs(x) < 1e-12 for i, row in enumerate(r) for j, x in enumerate(row) if i > j)


@given(matrices())
def test_svd_reconstructs_with_orthonormal_factors_and_descending_values(a: Matrix) -> None:
    u, sigma, v = svd(a)
    q = len(sigma)
    assert distance(matmul(matmul(u, diagonal(sigma)), transpose(v)), a) < 1e-11
    assert distance(matmul(transpose(u), u), identity(q)) < 1e-9
    assert distance(matmul(transpose(v), v), identity(q)) < 1e-9
    assert list(sigma) == sorted(sigma, reverse=True)


@given(matrices(3, 4), st.integers(1, 3))
def test_truncation_discards_exactly_the_tail_of_the_spectrum(a: Matrix, keep: int) -> None:
    b, factor = truncated(a, keep)
    tail = sum(s * s for s in svd(a).sigma[keep:])
    assert shape(b) == (3, keep)
    assert abs(squared_frobenius(subtract(a, matmul(b, factor))) - tail) < 1e-9


def test_the_rank_counts_independent_directions() -> None:
    one = outer((1.0, 2.0, 3.0), (4.0, 5.0))
    assert rank(one) == 1
    assert rank(add(one, outer((0.0, 1.0, 0.0), (1.0, 0.0)))) == 2
    assert rank(((0.0, 0.0),)) == 0


def test_the_inverse_of_a_singular_matrix_is_refused() -> None:
    assert distance(inverse(((0.0, 2.0), (4.0, 0.0))), ((0.0, 0.25), (0.5, 0.0))) == 0.0
    with pytest.raises(FixtureRefusedError):
        inverse(((1.0, 2.0), (2.0, 4.0)))


@given(st.lists(ENTRY, min_size=1, max_size=5).map(tuple), ENTRY)
def test_softmax_sums_to_one_and_ignores_a_common_shift(z: tuple[float, ...], shift: float) -> None:
    p = softmax(z)
    assert abs(math.fsum(p) - 1.0) < 1e-15
    assert distance((softmax(tuple(x + shift for x in z)),), (p,)) < 1e-15


def test_softmax_backward_agrees_with_differences_and_a_wrong_one_does_not() -> None:
    z, g = (0.3, -0.7, 1.1), (0.5, -0.25, 2.0)
    right = softmax_backward(softmax(z), g)
    seen = compare(lambda p: inner((softmax(p["z"][0]),), (g,)), {"z": (z,)}, {"z": (right,)})
    assert seen.coordinates == 3
    assert seen.worst < 1e-10
    wrong = compare(lambda p: inner((softmax(p["z"][0]),), (g,)), {"z": (z,)}, {"z": ((right[0], right[1], 0.0),)})
    assert wrong.where == "z[0][2]"
    assert wrong.worst > 0.1


def test_a_gradient_of_another_shape_is_refused() -> None:
    with pytest.raises(FixtureRefusedError):
        compare(lambda p: frobenius(p["x"]), {"x": ((1.0, 2.0),)}, {"x": ((1.0,), (2.0,))})
