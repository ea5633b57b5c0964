"""Static merge, dynamic composition and quantization order: which operation is exact, and in which space (R 0x05).

Shapes: A_i [r_i, d_in], B_i [d_out, r_i], D_i = s_i B_i A_i [d_out, d_in] with s_i = alpha_i / r_i.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from typing import Literal

from oracles.checks import Check, close, equal
from oracles.errors import FixtureRefusedError
from oracles.linalg import rank, svd, truncated
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    apply,
    distance,
    elementwise,
    frobenius,
    hstack,
    matmul,
    max_abs,
    norm,
    require_length,
    row_norms,
    scale,
    softmax,
    subtract,
    transpose,
    vstack,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle

CAT, SVD, LINEAR, TIES, DARE = "R 0x05B", "R 0x05C", "R 0x05D", "R 0x05E", "R 0x05F"
DYNAMIC, QUANTIZED = "R 0x05G", "R 0x05H"

Side = Literal["A", "B"]


class Adapter(Fixture):
    """One factor pair, its alpha and its request-static weight lambda."""

    A: FixtureMatrix
    B: FixtureMatrix
    alpha: float
    weight: float


class Cat(Fixture):
    """Block concatenation; the coefficients are absorbed into one side."""

    weights_enter: Side


class Linear(Fixture):
    """Factor-linear combination; one side carries the sign of c_i."""

    sign_enters: Side


class Gauge(Fixture):
    """A change of factors that leaves the product alone: A' = A_factor A, B' = B_factor B."""

    adapter: int
    A_factor: float
    B_factor: float


class Truncation(Fixture):
    """Delta SVD at a retained rank; sigma is placed on one side."""

    rank: int
    sigma_enters: Side


class Ties(Fixture):
    """Trim, elect, disjoint merge; the vectors are ours, chosen to meet the printed signs and result."""

    vectors: FixtureMatrix
    density: float
    election: Literal["total", "frequency"]
    reduction: Literal["disjoint_mean", "disjoint_sum"]
    empty_coordinate: float


class Dare(Fixture):
    """Drop and rescale with retain density q and one sampled mask z."""

    delta: FixtureVector
    q: float
    z: tuple[Literal[0, 1], ...]
    rescale: Literal["inverse_density", "none"]


class Dynamic(Fixture):
    """F(x) = sum_i g_i(x) D_i x with g(x) = softmax(R x)."""

    D: tuple[FixtureMatrix, FixtureMatrix]
    R: FixtureMatrix
    x: tuple[FixtureVector, FixtureVector]
    gate: Literal["softmax", "top1"]


class Quantizer(Fixture):
    """Q_s(z) = s clip(round(z / s), q_min, q_max) and the operands; the matrices are ours and meet the printed ones."""

    s: float
    q_min: int
    q_max: int
    rounding: Literal["half_even", "half_away"]
    W: FixtureMatrix
    D1: FixtureMatrix
    D2: FixtureMatrix


class CompositionFixture(Fixture):
    """The witnesses of R 0x05B to 0x05H."""

    adapters: tuple[Adapter, Adapter]
    cat: Cat
    linear: Linear
    gauge: Gauge
    svd: Truncation
    ties: Ties
    dare: Dare
    dynamic: Dynamic
    quantizer: Quantizer


def coefficient(adapter: Adapter) -> float:
    """c_i = lambda_i alpha_i / r_i."""
    return adapter.weight * adapter.alpha / len(adapter.A)


def delta_sum(adapters: tuple[Adapter, ...]) -> Matrix:
    """D = sum_i c_i B_i A_i."""
    return add(*(scale(coefficient(adapter), matmul(adapter.B, adapter.A)) for adapter in adapters))


def cat(adapters: tuple[Adapter, ...], side: Side) -> tuple[Matrix, Matrix]:
    """B_cat = [B_1 ... B_J] and A_cat = [c_1 A_1; ...; c_J A_J]: no cross terms meet."""
    weights = [(coefficient(a), 1.0) if side == "A" else (1.0, coefficient(a)) for a in adapters]
    B = hstack(*(scale(w[1], a.B) for a, w in zip(adapters, weights, strict=True)))
    return B, vstack(*(scale(w[0], a.A) for a, w in zip(adapters, weights, strict=True)))


def factor_linear(adapters: tuple[Adapter, ...], side: Side) -> tuple[Matrix, Matrix]:
    """A = sum_i sign(c_i) sqrt|c_i| A_i and B = sum_i sqrt|c_i| B_i, the sign on the named side."""
    roots = [math.sqrt(abs(coefficient(a))) for a in adapters]
    signed = [math.copysign(root, coefficient(a)) for a, root in zip(adapters, roots, strict=True)]
    for_A, for_B = (signed, roots) if side == "A" else (roots, signed)
    B = add(*(scale(w, a.B) for a, w in zip(adapters, for_B, strict=True)))
    return B, add(*(scale(w, a.A) for a, w in zip(adapters, for_A, strict=True)))


def regauged(adapters: tuple[Adapter, ...], gauge: Gauge) -> tuple[Adapter, ...]:
    """The adapters with one of them in another gauge."""
    if not 0 <= gauge.adapter < len(adapters):
        raise FixtureRefusedError("gauge.adapter", gauge.adapter, f"an index below {len(adapters)}")
    old = adapters[gauge.adapter]
    new = Adapter(A=scale(gauge.A_factor, old.A), B=scale(gauge.B_factor, old.B), alpha=old.alpha, weight=old.weight)
    return tuple(new if i == gauge.adapter else a for i, a in enumerate(adapters))


def svd_factors(D: Matrix, truncation: Truncation) -> tuple[Matrix, Matrix]:
    """B' = U_r' Sigma_r' and A' = V_r'^T, or sigma on the other side."""
    if truncation.sigma_enters == "B":
        return truncated(D, truncation.rank)
    A, B = truncated(transpose(D), truncation.rank)
    return transpose(B), transpose(A)


def trim(vector: Vector, density: float) -> Vector:
    """Keep the density * n largest magnitudes, zero the rest; ties keep the earlier coordinate."""
    count = density * len(vector)
    if count != round(count):
        raise FixtureRefusedError("ties.density", density, "a whole number of retained coordinates")
    kept = sorted(range(len(vector)), key=lambda p: -abs(vector[p]))[: round(count)]
    return tuple(x if p in kept else 0.0 for p, x in enumerate(vector))


def elect(column: Vector, election: str) -> int:
    """gamma_p = sign(sum_t tau_t,p), by total movement or by the number of signs."""
    total = math.fsum(column) if election == "total" else math.fsum((x > 0.0) - (x < 0.0) for x in column)
    return (total > 0.0) - (total < 0.0)


def reduce_aligned(column: Vector, sign: int, ties: Ties) -> float:
    """Mean (or sum) of the non-zero values that carry the elected sign; the stated value when there is none."""
    aligned = [x for x in column if x * sign > 0.0]
    if not aligned:
        return ties.empty_coordinate
    return math.fsum(aligned) / (len(aligned) if ties.reduction == "disjoint_mean" else 1)


def dare_sample(dare: Dare, z: tuple[int, ...]) -> Vector:
    """delta_hat_j = z_j delta_j / q."""
    require_length("dare.z", z, len(dare.delta))
    divisor = dare.q if dare.rescale == "inverse_density" else 1.0
    return tuple(keep * x / divisor for keep, x in zip(z, dare.delta, strict=True))


def dare_expectation(dare: Dare) -> Vector:
    """E[delta_hat] over all masks, each with probability q^kept (1 - q)^dropped."""
    masks = list(product((0, 1), repeat=len(dare.delta)))
    chances = [dare.q ** sum(z) * (1.0 - dare.q) ** (len(z) - sum(z)) for z in masks]
    samples = [dare_sample(dare, z) for z in masks]
    return tuple(
        math.fsum(chance * sample[j] for chance, sample in zip(chances, samples, strict=True))
        for j in range(len(dare.delta))
    )


def gates(dynamic: Dynamic, x: Vector) -> Vector:
    """g(x) = softmax(R x), or one-hot at the largest logit."""
    logits = apply(dynamic.R, x)
    if dynamic.gate == "softmax":
        return softmax(logits)
    return tuple(1.0 if i == logits.index(max(logits)) else 0.0 for i in range(len(logits)))


def effective(dynamic: Dynamic, x: Vector) -> Matrix:
    """D_eff(x) = sum_i g_i(x) D_i."""
    g = gates(dynamic, x)
    require_length("gates", g, len(dynamic.D))
    return add(*(scale(weight, D) for weight, D in zip(g, dynamic.D, strict=True)))


def quantize(quantizer: Quantizer, a: Matrix) -> Matrix:
    """Q_s entry by entry; Python's round is half-even."""

    def code(z: float) -> float:
        rounded = round(z) if quantizer.rounding == "half_even" else math.copysign(math.floor(abs(z) + 0.5), z)
        return min(max(rounded, quantizer.q_min), quantizer.q_max)

    return elementwise(lambda z: quantizer.s * code(z / quantizer.s), a)


def cat_checks(fixture: CompositionFixture) -> Iterator[Check]:
    """Concatenation reconstructs the weighted sum exactly and adds the ranks."""
    D = delta_sum(fixture.adapters)
    B, A = cat(fixture.adapters, fixture.cat.weights_enter)
    yield equal("D", D, ((1.0, 0.0), (0.0, -0.5)), source=CAT)
    yield equal("A_cat", A, ((1.0, 0.0), (0.0, -0.5)), source=CAT)
    yield equal("B_cat", B, ((1.0, 0.0), (0.0, 1.0)), source=CAT)
    yield equal("cat reconstruction error", distance(matmul(B, A), D), 0.0, source=CAT)
    ranks = tuple(rank(matmul(a.B, a.A)) for a in fixture.adapters)
    yield equal("input ranks", ranks, (1, 1), source=CAT)
    yield equal("composed rank", rank(D), 2, source=CAT)


def svd_checks(fixture: CompositionFixture) -> Iterator[Check]:
    """The rank-1 truncation, its error, and where sigma is placed."""
    D = delta_sum(fixture.adapters)
    B, A = svd_factors(D, fixture.svd)
    yield close("singular values", svd(D).sigma, (1.0, 0.5), source=SVD, digits=12)
    yield close("rank-1 approximation", matmul(B, A), ((1.0, 0.0), (0.0, 0.0)), source=SVD, digits=12)
    yield close("rank-1 Frobenius error", frobenius(subtract(D, matmul(B, A))), 0.5, source=SVD, digits=12)
    full_B, full_A = svd_factors(D, Truncation(rank=2, sigma_enters=fixture.svd.sigma_enters))
    yield close("sigma stands in B", row_norms(transpose(full_B)), (1.0, 0.5), source=SVD, digits=12)
    yield close("A has orthonormal rows", row_norms(full_A), (1.0, 1.0), source=SVD, digits=12)


def linear_checks(fixture: CompositionFixture) -> Iterator[Check]:
    """Factor-linear output, its cross terms and its dependence on the gauge."""
    D = delta_sum(fixture.adapters)
    B, A = factor_linear(fixture.adapters, fixture.linear.sign_enters)
    root = math.sqrt(0.5)
    yield close("A_lin", A, ((1.0, -root),), source=LINEAR, digits=12)
    yield close("B_lin", B, ((1.0,), (root,)), source=LINEAR, digits=12)
    yield close("B_lin A_lin", matmul(B, A), ((1.0, -0.7071), (0.7071, -0.5)), source=LINEAR, digits=4)
    yield close("cross-term norm", frobenius(subtract(matmul(B, A), D)), 1.0, source=LINEAR, digits=1, tolerance=1e-12)
    other = regauged(fixture.adapters, fixture.gauge)
    factors = (fixture.gauge.A_factor, fixture.gauge.B_factor)
    yield equal("gauge of the second adapter", (fixture.gauge.adapter, *factors), (1, 2.0, 0.5), source=LINEAR)
    yield equal("the gauge leaves the delta sum alone", distance(delta_sum(other), D), 0.0, source=LINEAR)
    B2, A2 = factor_linear(other, fixture.linear.sign_enters)
    change = distance(matmul(B2, A2), matmul(B, A))
    yield close("factor-linear change under the gauge", change, 0.7071, source=LINEAR, digits=4)


def ties_checks(fixture: CompositionFixture) -> Iterator[Check]:
    """Trim, sign election and disjoint mean."""
    ties = fixture.ties
    trimmed = tuple(trim(vector, ties.density) for vector in ties.vectors)
    retained = tuple(sum(1 for x in vector if x) for vector in trimmed)
    yield equal("TIES trimmed vectors", trimmed, TRIMMED, source=TIES)
    yield equal("TIES retained coordinates", retained, (2, 2, 2), source=TIES)
    columns = transpose(trimmed)
    signs = tuple(elect(column, ties.election) for column in columns)
    yield equal("TIES signs", signs, (1, -1, -1, 0), source=TIES)
    merged = tuple(reduce_aligned(column, sign, ties) for column, sign in zip(columns, signs, strict=True))
    yield equal("TIES merge", merged, (4.0, -3.0, -2.5, 0.0), source=TIES)


def dare_checks(fixture: CompositionFixture) -> Iterator[Check]:
    """The expectation is the delta; one sample is not."""
    dare = fixture.dare
    expectation = (dare_expectation(dare),)
    yield equal("DARE expectation error", distance(expectation, (dare.delta,)), 0.0, source=DARE)
    sample = dare_sample(dare, dare.z)
    yield equal("DARE sample", sample, (4.0, 0.0, 1.0, 0.0), source=DARE)
    differences = subtract((sample,), (dare.delta,))[0]
    yield equal("DARE sample differences", differences, (2.0, 1.0, 0.5, -3.0), source=DARE)
    yield equal("DARE sample max difference", distance((sample,), (dare.delta,)), 3.0, source=DARE)


def dynamic_checks(fixture: CompositionFixture) -> Iterator[Check]:
    """A routed function is not additive, so no static matrix replaces it."""
    dynamic = fixture.dynamic
    x1, x2 = dynamic.x
    both = add((x1,), (x2,))[0]
    inputs = (x1, x2, both)
    printed = ((0.7311, 0.2689), (0.2689, 0.7311), (0.5, 0.5))
    yield close("gates", tuple(gates(dynamic, x) for x in inputs), printed, source=DYNAMIC, digits=4)
    weights = tuple(effective(dynamic, x) for x in inputs)
    F = tuple(apply(D, x) for D, x in zip(weights, inputs, strict=True))
    residual = subtract((F[2],), add((F[0],), (F[1],)))[0]
    yield close("additivity residual", residual, (-0.2311, -0.2311), source=DYNAMIC, digits=4)
    yield close("additivity residual norm", norm(residual), 0.3268, source=DYNAMIC, digits=4)
    spread = max(distance(a, b) for a, b in combinations(weights, 2))
    yield close("largest difference of effective matrices", spread, 0.4621, source=DYNAMIC, digits=4)


def quantizer_checks(fixture: CompositionFixture) -> Iterator[Check]:
    """Three operation orders give three artifacts, and subtraction does not undo rounding."""
    q = fixture.quantizer
    W, D1, D2 = q.W, q.D1, q.D2
    once = quantize(q, add(W, D1, D2))
    base_only = add(quantize(q, W), D1, D2)
    sequential = quantize(q, add(quantize(q, add(W, D1)), D2))
    unmerged = subtract(quantize(q, add(W, D1)), D1)
    tight = partial(close, source=QUANTIZED, digits=2, tolerance=1e-12)
    yield equal("quantizer range", quantize(q, ((-100.0, 100.0),)), ((-1.0, 1.0),), source=QUANTIZED)
    yield equal("ties round to even", quantize(q, ((0.125, 0.375),)), ((0.0, 0.5),), source=QUANTIZED)
    yield tight("Q(W+D1+D2)", once, ((-0.75, 0.0), (0.5, 0.5)))
    yield tight("Q(W)+D1+D2", base_only, ((-0.85, 0.05), (0.5, 0.5)))
    yield tight("Q(Q(W+D1)+D2)", sequential, ((-1.0, 0.0), (0.5, 0.5)))
    yield tight("quantize before or after adding", max_abs(subtract(once, base_only)), 0.10)
    yield tight("sequential against one-shot", max_abs(subtract(once, sequential)), 0.25)
    yield tight("rounded unmerge base error", max_abs(subtract(unmerged, W)), 0.10)


def evaluate(fixture: CompositionFixture) -> Iterator[Check]:
    """Every check of R 0x05, in the order of its subsections."""
    yield from cat_checks(fixture)
    yield from svd_checks(fixture)
    yield from linear_checks(fixture)
    yield from ties_checks(fixture)
    yield from dare_checks(fixture)
    yield from dynamic_checks(fixture)
    yield from quantizer_checks(fixture)


TRIMMED: Matrix = ((4.0, 0.0, -2.0, 0.0), (0.0, -3.0, -3.0, 0.0), (-1.0, 2.0, 0.0, 0.0))

_UNSELECTED = {
    f"/ties/vectors/{t}/{p}": "trimmed away: smaller than the two retained magnitudes"
    for t, row in enumerate(TRIMMED)
    for p, kept in enumerate(row)
    if not kept
}

ORACLE = Oracle(
    name="composition_merge",
    document="R",
    sections=("0x05A", "0x05B", "0x05C", "0x05D", "0x05E", "0x05F", "0x05G", "0x05H"),
    module=__name__,
    fixture=CompositionFixture,
    evaluate=evaluate,
    proves=(
        "block concatenation is the exact weighted delta sum, with added ranks",
        "the error of a rank-1 delta SVD, the cross terms and the gauge dependence of factor-linear merging",
        "TIES and DARE on full vectors, non-additivity of a routed function, operation order under quantization",
    ),
    does_not_prove=(
        "that any merged adapter keeps the quality of its members",
        "TIES or DARE applied to factors, a deployment quantizer, or the provenance record of R 0x05I",
    ),
    own=("ties.vectors", "quantizer.W", "quantizer.D1", "quantizer.D2"),
    no_role={
        **_UNSELECTED,
        "/ties/vectors/1: order": "the two retained values are equal, so the reversed vector trims to the same one",
    },
    document_mutations=128,
)
