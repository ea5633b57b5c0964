"""DoRA: magnitude-direction coordinates change forward, backward and merge (V 0x08).

Shapes: W0, U, G [d_out, d_in]; A [r, d_in]; B [d_out, r]; m, c, f, bias [d_out]; X [T, d_in].
"""

import math
from collections.abc import Iterator
from typing import Literal

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    dot,
    frobenius,
    hadamard,
    inner,
    matmul,
    max_abs,
    require_length,
    require_shape,
    row_norms,
    scale,
    scale_rows,
    shape,
    subtract,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle

AXIS, FORWARD, INITIAL, FULL, DETACHED = "V 0x08A", "V 0x08B", "V 0x08C", "V 0x08D", "V 0x08E"
TRACE, LIVE, DROPOUT, MERGE = "V 0x08F", "V 0x08G", "V 0x08H", "V 0x08I"

NormAxis = Literal["output_row", "input_column"]


class Dropout(Fixture):
    """One sampled, scaled dropout mask: D(X) = D * X with entries 0 or 1 / (1 - p)."""

    p: float
    D: FixtureMatrix


class DoraFixture(Fixture):
    """The three-by-three trace of V 0x08F; X and G follow from its printed results."""

    W0: FixtureMatrix
    A: FixtureMatrix
    B: FixtureMatrix
    s: float
    m: FixtureVector
    bias: FixtureVector
    X: FixtureMatrix
    G: FixtureMatrix
    norm_axis: NormAxis
    dropout: Dropout


def direction(fixture: DoraFixture, B: Matrix) -> Matrix:
    """U = W0 + s B A: the scale is part of the normalised object."""
    return add(fixture.W0, scale(fixture.s, matmul(B, fixture.A)))


def direction_norms(U: Matrix, axis: NormAxis) -> Vector:
    """c_i = |u_i|_2 over output rows; the other axis is the trap of V 0x08A. A zero row is refused."""
    c = row_norms(U if axis == "output_row" else transpose(U))
    if 0.0 in c:
        raise FixtureRefusedError("U", "a direction of zero norm", "non-zero rows")
    return c


def factors(m: Vector, c: Vector) -> Vector:
    """f_i = m_i / c_i."""
    require_length("m", m, len(c))
    return tuple(x / y for x, y in zip(m, c, strict=True))


def effective_weight(U: Matrix, m: Vector, axis: NormAxis = "output_row") -> Matrix:
    """W_DoRA = diag(m / c) U."""
    return scale_rows(factors(m, direction_norms(U, axis)), U)


def full_backward(U: Matrix, m: Vector, G: Matrix) -> tuple[Vector, Matrix]:
    """grad m = q.g and grad u = (m/c)(I - q q^T) g, row by row."""
    c = direction_norms(U, "output_row")
    q = scale_rows(tuple(1.0 / x for x in c), U)
    grad_m = tuple(dot(x, g) for x, g in zip(q, G, strict=True))
    return grad_m, scale_rows(factors(m, c), subtract(G, scale_rows(grad_m, q)))


def detached_backward(U: Matrix, m: Vector, G: Matrix) -> Matrix:
    """grad u = (m/c) g: the norm is a constant in backward."""
    return scale_rows(factors(m, direction_norms(U, "output_row")), G)


def radial(U: Matrix, grad_U: Matrix) -> Vector:
    """q_i . grad u_i for every row."""
    rows = zip(U, direction_norms(U, "output_row"), grad_U, strict=True)
    return tuple(dot(u, g) / c for u, c, g in rows)


def add_bias(Y: Matrix, bias: Vector) -> Matrix:
    """Y + b in every row."""
    return add(Y, tuple(bias for _ in Y))


def live(fixture: DoraFixture, B: Matrix, m: Vector, dropped: Matrix, base_input: Matrix) -> Matrix:
    """Y = X W0^T + (f - 1) * D(X) W0^T + f * s D(X) (BA)^T, without bias (V 0x08G and, with dropout, V 0x08H)."""
    f = factors(m, direction_norms(direction(fixture, B), fixture.norm_axis))
    base = matmul(dropped, transpose(fixture.W0))
    lora = scale(fixture.s, matmul(dropped, transpose(matmul(B, fixture.A))))
    gated = tuple(
        tuple((g - 1.0) * x + g * y for g, x, y in zip(f, row, other, strict=True))
        for row, other in zip(base, lora, strict=True)
    )
    return add(matmul(base_input, transpose(fixture.W0)), gated)


def merge(W0: Matrix, delta: Matrix, m: Vector) -> tuple[Matrix, Vector]:
    """W_merged = diag(f)(W0 + delta) and the cached norm c; a factor f_i = 0 is refused before the base changes."""
    c = direction_norms(add(W0, delta), "output_row")
    if 0.0 in m:
        raise FixtureRefusedError("m", "a zero magnitude", "non-zero factors, or unmerge divides by zero")
    return scale_rows(factors(m, c), add(W0, delta)), c


def unmerge(merged: Matrix, delta: Matrix, m: Vector, c: Vector) -> Matrix:
    """W0 = diag(f)^-1 W_merged - delta with the cached c."""
    return subtract(scale_rows(tuple(1.0 / f for f in factors(m, c)), merged), delta)


def forward_checks(fixture: DoraFixture) -> Iterator[Check]:
    """BA, U, c, f and W_DoRA of the trace, and the two orientations."""
    U = direction(fixture, fixture.B)
    c = direction_norms(U, fixture.norm_axis)
    weight = effective_weight(U, fixture.m, fixture.norm_axis)
    yield close("BA", matmul(fixture.B, fixture.A), PRODUCT, source=TRACE, digits=2, tolerance=1e-12)
    yield close("U", U, DIRECTION, source=TRACE, digits=3, tolerance=1e-12)
    yield close("row norms c", c, NORMS, source=TRACE, digits=12)
    yield close("factors f", factors(fixture.m, c), FACTORS, source=TRACE, digits=12)
    yield close("W_DoRA", weight, WEIGHT, source=TRACE, digits=12)
    paper = transpose(column_normalised(transpose(U), fixture.m))
    yield below("paper columns against rows, transposed back", distance(paper, weight), 1e-14, source=AXIS)
    wrong = effective_weight(U, fixture.m, "input_column")
    yield above("normalising the other axis changes W", distance(wrong, weight), 0.1, source=AXIS)
    unscaled = scale_rows(factors(fixture.m, row_norms(add(fixture.W0, matmul(fixture.B, fixture.A)))), U)
    yield above("omitting s inside the norm changes W", distance(unscaled, weight), 1e-3, source=FORWARD)
    r, d_in = shape(fixture.A)
    d_out = len(fixture.W0)
    counts = (r * (d_in + d_out) + d_out, r * (d_in + d_out))
    yield equal("trainable parameters, DoRA and LoRA", counts, (15, 12), source=FORWARD)


def column_normalised(V: Matrix, m: Vector) -> Matrix:
    """The paper's W = m * V / |V|_c with one magnitude a column."""
    norms = tuple(math.sqrt(math.fsum(row[j] ** 2 for row in V)) for j in range(len(m)))
    return tuple(tuple(m[j] * x / norms[j] for j, x in enumerate(row)) for row in V)


def output_checks(fixture: DoraFixture) -> Iterator[Check]:
    """Live and merged execution of the two-row input; the bias is counted once."""
    U = direction(fixture, fixture.B)
    merged = matmul(fixture.X, transpose(effective_weight(U, fixture.m, fixture.norm_axis)))
    decomposed = live(fixture, fixture.B, fixture.m, fixture.X, fixture.X)
    yield close("Y", merged, OUTPUT, source=TRACE, digits=12)
    yield below("live against merged execution", distance(decomposed, merged), 1e-14, source=TRACE)
    base_result = add_bias(matmul(fixture.X, transpose(fixture.W0)), fixture.bias)
    correction = subtract(decomposed, matmul(fixture.X, transpose(fixture.W0)))
    counted = subtract(add(base_result, correction), merged)
    yield close("bias added once a row", counted, (BIAS, BIAS), source=LIVE, digits=12)


def backward_checks(fixture: DoraFixture) -> Iterator[Check]:
    """Full and detached gradients, to the printed digit and against central differences."""
    U, G = direction(fixture, fixture.B), fixture.G
    require_shape("G", G, shape(U))
    grad_m, grad_U = full_backward(U, fixture.m, G)
    detached = detached_backward(U, fixture.m, G)
    yield close("grad m", grad_m, GRAD_M, source=TRACE, digits=12)
    yield close("grad U", grad_U, GRAD_U, source=TRACE, digits=12)
    yield below("full gradient is tangent", max(map(abs, radial(U, grad_U))), 1e-15, source=FULL)
    yield close("detached minus full", frobenius(subtract(detached, grad_U)), 0.465297169008, source=TRACE, digits=12)
    yield close("radial part of the detached gradient", radial(U, detached), RADIAL, source=TRACE, digits=12)
    yield from difference_checks(fixture, U, grad_m, grad_U)


def difference_checks(fixture: DoraFixture, U: Matrix, grad_m: Vector, grad_U: Matrix) -> Iterator[Check]:
    """Central differences of L = <G, W_DoRA> in U, m, A and B, and with the norm held constant."""
    c = direction_norms(U, "output_row")

    def loss(point: Point) -> float:
        return inner(fixture.G, effective_weight(point["U"], point["m"][0]))

    def factor_loss(point: Point) -> float:
        product = add(fixture.W0, scale(fixture.s, matmul(point["B"], point["A"])))
        return inner(fixture.G, effective_weight(product, fixture.m))

    def held(point: Point) -> float:
        return inner(fixture.G, scale_rows(factors(fixture.m, c), point["U"]))

    at = {"U": U, "m": (fixture.m,)}
    in_U = compare(lambda p: loss({**at, **p}), {"U": U}, {"U": grad_U})
    in_m = compare(lambda p: loss({**at, **p}), {"m": (fixture.m,)}, {"m": (grad_m,)})
    yield gradient("grad U against differences", in_U, 1.61e-10, source=TRACE)
    yield gradient("grad m against differences", in_m, 1.50e-10, source=TRACE)
    grads = {
        "A": scale(fixture.s, matmul(transpose(fixture.B), grad_U)),
        "B": scale(fixture.s, matmul(grad_U, transpose(fixture.A))),
    }
    in_factors = compare(factor_loss, {"A": fixture.A, "B": fixture.B}, grads)
    yield gradient("grad A and B against differences", in_factors, 1e-9, source=FULL)
    stopped = compare(held, {"U": U}, {"U": detached_backward(U, fixture.m, fixture.G)})
    yield gradient("detached gradient with c held", stopped, 1e-9, source=DETACHED)


def initial_checks(fixture: DoraFixture) -> Iterator[Check]:
    """B0 = 0 and m0 = |W0|: the function is preserved, and B and m receive the first gradients."""
    B0 = zeros(*shape(fixture.B))
    U, m0 = direction(fixture, B0), row_norms(fixture.W0)
    grad_m, grad_U = full_backward(U, m0, fixture.G)
    yield equal("m0", m0, (5.0, 3.0, 3.0), source=TRACE)
    yield equal("no-op weight error", distance(effective_weight(U, m0), fixture.W0), 0.0, source=TRACE)
    grad_A = scale(fixture.s, matmul(transpose(B0), grad_U))
    yield equal("first grad A", max_abs(grad_A), 0.0, source=TRACE)
    grad_B = scale(fixture.s, matmul(grad_U, transpose(fixture.A)))
    yield above("first grad B is not zero", max_abs(grad_B), 1e-2, source=INITIAL)
    yield above("first grad m is not zero", max(map(abs, grad_m)), 1e-2, source=INITIAL)


def dropout_checks(fixture: DoraFixture) -> Iterator[Check]:
    """Sampled dropout is not the merged map, and cancels exactly at the no-op initialization."""
    D, keep = fixture.dropout.D, 1.0 - fixture.dropout.p
    require_shape("dropout.D", D, shape(fixture.X))
    if not all(x in (0.0, 1.0 / keep) for row in D for x in row):
        raise FixtureRefusedError("dropout.D", "another entry", "0 or 1 / (1 - p)")
    kept = tuple(tuple(j for j, x in enumerate(row) if x) for row in D)
    yield equal("kept coordinates a row", kept, ((0, 2), (1, 2)), source=DROPOUT)
    dropped = hadamard(D, fixture.X)
    trained = live(fixture, fixture.B, fixture.m, dropped, fixture.X)
    merged = matmul(fixture.X, transpose(effective_weight(direction(fixture, fixture.B), fixture.m)))
    yield above("trained dropout differs from merged", distance(trained, merged), 0.1, source=DROPOUT)
    initial = live(fixture, zeros(*shape(fixture.B)), row_norms(fixture.W0), dropped, fixture.X)
    error = distance(initial, matmul(fixture.X, transpose(fixture.W0)))
    yield equal("initial dropout keeps the base output", error, 0.0, source=DROPOUT)


def refuses(W0: Matrix, delta: Matrix, m: Vector) -> bool:
    """Whether merge refuses these operands."""
    try:
        merge(W0, delta, m)
    except FixtureRefusedError:
        return True
    return False


def merge_checks(fixture: DoraFixture) -> Iterator[Check]:
    """Merge then unmerge with the cached norm recovers W0; the recomputed norm and m_i = 0 do not."""
    delta = scale(fixture.s, matmul(fixture.B, fixture.A))
    merged, c = merge(fixture.W0, delta, fixture.m)
    yield below("unmerge recovers W0", distance(unmerge(merged, delta, fixture.m, c), fixture.W0), 1e-14, source=MERGE)
    recomputed = unmerge(merged, delta, fixture.m, row_norms(merged))
    yield above("unmerge without the cached norm fails", distance(recomputed, fixture.W0), 0.1, source=MERGE)
    yield equal("m_i = 0 is refused", refuses(fixture.W0, delta, (0.0, *fixture.m[1:])), True, source=MERGE)
    yield equal("a zero direction is refused", refuses(zeros(3, 3), zeros(3, 3), fixture.m), True, source=MERGE)
    negative = tuple(f < 0.0 for f in factors(fixture.m, c))
    yield equal("a signed magnitude keeps its sign", negative, (False, False, True), source=TRACE)


def evaluate(fixture: DoraFixture) -> Iterator[Check]:
    """Every check of V 0x08, in the order of its subsections."""
    d_out, d_in = shape(fixture.W0)
    require_shape("A", fixture.A, (shape(fixture.A)[0], d_in))
    require_shape("B", fixture.B, (d_out, len(fixture.A)))
    require_length("m", fixture.m, d_out)
    require_length("bias", fixture.bias, d_out)
    require_shape("X", fixture.X, (2, d_in))
    yield from forward_checks(fixture)
    yield from output_checks(fixture)
    yield from backward_checks(fixture)
    yield from initial_checks(fixture)
    yield from dropout_checks(fixture)
    yield from merge_checks(fixture)


PRODUCT: Matrix = ((0.10, -0.05, 0.01), (0.14, -0.07, 0.07), (-0.18, 0.09, 0.01))
DIRECTION: Matrix = ((3.05, 3.975, 0.005), (1.07, -2.035, 2.035), (1.91, 1.045, 2.005))
NORMS: Vector = (5.010304381971, 3.070398996873, 2.959755057433)
FACTORS: Vector = (1.097737698291, 0.879364539511, -1.081170548882)
WEIGHT: Matrix = (
    (3.348099979786, 4.363507350705, 0.005488688491),
    (0.940920057277, -1.789506837905, 1.789506837905),
    (-2.065035748364, -1.129823223581, -2.167746950508),
)
OUTPUT: Matrix = (
    (1.177323681417, 5.414687152038, -5.835618037589),
    (3.198533218394, -3.177803604657, -0.171635824635),
)
BIAS: Vector = (0.1, -0.2, 0.3)
GRAD_M: Vector = (0.188311912425, -0.404507688175, -0.201030148933)
GRAD_U: Matrix = (
    (0.642578303506, -0.493323404260, 0.219341247715),
    (-0.227784924235, 0.203924873172, 0.323693850534),
    (-0.356493839379, -0.725441291337, 0.717700440229),
)
RADIAL: Vector = (0.206717085306, -0.355709716941, 0.217347876463)

ORACLE = Oracle(
    name="dora",
    document="V",
    sections=("0x08A", "0x08B", "0x08C", "0x08D", "0x08E", "0x08F", "0x08G", "0x08H", "0x08I"),
    module=__name__,
    fixture=DoraFixture,
    evaluate=evaluate,
    proves=(
        "the scale-aware forward, in paper columns and in stored rows",
        "full and detached gradients, their difference and the tangent property",
        "no-op initialization, dropout path, bias counted once, merge and unmerge with the cached norm",
    ),
    does_not_prove=(
        "any training run, memory saving or quality figure of the paper",
        "losslessness for another dtype, a quantized base or stacked adapters",
    ),
    own=("bias", "dropout", "X", "G"),
)
