"""PiSSA: a frozen residual plus a nonzero principal adapter, and its two artifacts (V 0x06).

Shapes: W, W_res [d_out, d_in]; A [r, d_in]; B [d_out, r]; X [N, d_in]; G [N, d_out].
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.errors import FixtureRefusedError
from oracles.linalg import rank, svd
from oracles.matrix import (
    Matrix,
    add,
    apply,
    distance,
    frobenius,
    hadamard,
    hstack,
    matmul,
    norm,
    outer,
    require_length,
    require_shape,
    scale,
    shape,
    squared_frobenius,
    subtract,
    transpose,
    vstack,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.variants.lora import (
    backward,
    effective,
    held_against_differences,
    output,
    rounded,
    spectral_factors,
)

SPLIT, SCALE, TRACE, GRADIENT, STEP = "V 0x06A", "V 0x06B", "V 0x06C", "V 0x06D", "V 0x06E"
FAST, DROPOUT, ARTIFACT, QUANTIZED = "V 0x06F", "V 0x06G", "V 0x06H", "V 0x06I"


class State(Fixture):
    """What initialization must record beside rank and scale (V 0x06K)."""

    svd: Literal["exact", "randomized"]
    niter: int | None
    seed: int | None
    svd_dtype: Literal["float32"]
    dropout: float


class Dropout(Fixture):
    """One sampled, scaled mask on the adapter's input."""

    p: float
    D: FixtureMatrix


class PissaFixture(Fixture):
    """The three-by-three trace of V 0x06C and 0x06D."""

    W: FixtureMatrix
    r: int
    s: float
    roots: Literal["scaled", "unscaled"]
    X: FixtureMatrix
    G: FixtureMatrix
    eta: float
    state: State
    fast_start: FixtureVector
    dropout: Dropout
    native_base: Literal["residual", "original"]
    portable: Literal["trained_minus_initial", "trained_only"]
    residual_step: float


class Split(NamedTuple):
    """The initialized layer: W = residual + s B A."""

    residual: Matrix
    B: Matrix
    A: Matrix


def split(W: Matrix, r: int, s: float) -> Split:
    """Scale-aware principal factors, and the residual by subtraction."""
    B, A = spectral_factors(W, r, s)
    return Split(subtract(W, scale(s, matmul(B, A))), B, A)


def initialized(fixture: PissaFixture) -> Split:
    """The layer as the fixture splits singular values; unscaled roots are the trap of V 0x06B."""
    exact = split(fixture.W, fixture.r, fixture.s)
    if fixture.roots == "scaled":
        return exact
    return Split(exact.residual, *spectral_factors(fixture.W, fixture.r, 1.0))


def trained(fixture: PissaFixture, start: Split) -> tuple[Matrix, Matrix]:
    """B_1 and A_1 after one SGD step."""
    grads = backward(start.residual, start.A, start.B, fixture.s, fixture.X, fixture.G)
    B1 = subtract(start.B, scale(fixture.eta, grads["B"]))
    return B1, subtract(start.A, scale(fixture.eta, grads["A"]))


def portable_factors(start: Split, B: Matrix, A: Matrix) -> tuple[Matrix, Matrix]:
    """[B_t B_0] and [A_t; -A_0]: rank at most 2r."""
    return hstack(B, start.B), vstack(A, scale(-1.0, start.A))


def power_split(fixture: PissaFixture) -> tuple[Split, float]:
    """One power iteration from `fast_start` in place of the SVD (rank one), and the energy it captures."""
    v = apply(transpose(fixture.W), apply(fixture.W, fixture.fast_start))
    if not (length := norm(v)):
        raise FixtureRefusedError("fast_start", list(fixture.fast_start), "a start outside the null space")
    v = tuple(x / length for x in v)
    u = apply(fixture.W, v)
    B, A = scale(1.0 / fixture.s, transpose((u,))), (v,)
    return Split(subtract(fixture.W, scale(fixture.s, matmul(B, A))), B, A), squared_frobenius((u,))


def split_checks(fixture: PissaFixture, start: Split) -> Iterator[Check]:
    """Singular values, factors, residual, energy and tail; the scale inside the roots."""
    W, s = fixture.W, fixture.s
    principal = scale(s, matmul(start.B, start.A))
    yield close("singular values", svd(W).sigma, (16.0, 9.0, 1.0), source=TRACE, digits=12)
    yield close("B0", start.B, ((1.2,), (1.6,), (0.0,)), source=TRACE, digits=12)
    yield close("A0", start.A, ((0.0, 2.0, 0.0),), source=TRACE, digits=12)
    yield close("s B0 A0", principal, PRINCIPAL, source=TRACE, digits=12)
    yield close("W_res", start.residual, RESIDUAL, source=TRACE, digits=12)
    error = distance(add(start.residual, principal), W)
    yield below("W_res + s B0 A0 is W", error, 1e-14, source=SCALE)
    energy = squared_frobenius(principal) / squared_frobenius(W)
    yield close("captured energy", energy, 0.7574, source=TRACE, digits=4)
    yield close("tail energy", squared_frobenius(start.residual), 82.0, source=TRACE, digits=10)
    tail = math.fsum(x * x for x in svd(W).sigma[fixture.r :])
    yield close("squares of the singular tail", tail, 82.0, source=SPLIT, digits=10)
    B, A = spectral_factors(W, fixture.r, 1.0)
    omitted = subtract(effective(start.residual, A, B, s), W)
    yield close("squared error when s is omitted", squared_frobenius(omitted), 2304.0, source=SCALE, digits=9)
    state = fixture.state
    recorded = (state.svd, state.niter, state.seed, state.svd_dtype, state.dropout)
    yield equal("initialization state", recorded, ("exact", None, None, "float32", 0.0), source=FAST)


def gradient_checks(fixture: PissaFixture, start: Split) -> Iterator[Check]:
    """Both factors receive a first gradient."""
    grads = backward(start.residual, start.A, start.B, fixture.s, fixture.X, fixture.G)
    yield close("X A0^T", output(fixture.X, start.A), ((4.0,), (2.0,)), source=GRADIENT, digits=12)
    yield close("g_B", grads["B"], ((32.0,), (-12.0,), (24.0,)), source=GRADIENT, digits=12)
    yield close("g_A", grads["A"], ((-1.6, 9.6, 12.8),), source=GRADIENT, digits=12)
    held = held_against_differences(start.residual, start.A, start.B, fixture.s, fixture.X, fixture.G)
    yield gradient("gradients against differences", held, 1e-8, source=GRADIENT)


def step_checks(fixture: PissaFixture, start: Split) -> Iterator[Check]:
    """One step leaves the principal subspace; tangent plus cross term is the whole update."""
    B1, A1 = trained(fixture, start)
    yield close("B1", B1, ((0.88,), (1.72,), (-0.24,)), source=STEP, digits=12)
    yield close("A1", A1, ((0.016, 1.904, -0.128),), source=STEP, digits=12)
    dB, dA = subtract(B1, start.B), subtract(A1, start.A)
    tangent = scale(fixture.s, add(matmul(dB, start.A), matmul(start.B, dA)))
    cross = scale(fixture.s, matmul(dB, dA))
    update = scale(fixture.s, subtract(matmul(B1, A1), matmul(start.B, start.A)))
    error = distance(update, add(tangent, cross))
    yield below("tangent plus cross term is the update", error, 1e-14, source=STEP)
    yield close("cross-term norm", frobenius(cross), 0.268605, source=STEP, digits=6)


def fast_checks(fixture: PissaFixture) -> Iterator[Check]:
    """An approximate subspace, and parity all the same."""
    fast, captured = power_split(fixture)
    yield close("energy of one power iteration", captured, POWER_ENERGY, source=FAST, digits=9)
    error = distance(effective(fast.residual, fast.A, fast.B, fixture.s), fixture.W)
    yield below("fast parity", error, 1e-14, source=FAST)
    yield above("fast subspace is not the exact one", 256.0 - captured, 1.0, source=FAST)


def dropout_checks(fixture: PissaFixture, start: Split) -> Iterator[Check]:
    """A sampled mask on the branch changes the initial output."""
    D, keep = fixture.dropout.D, 1.0 - fixture.dropout.p
    require_shape("dropout.D", D, shape(fixture.X))
    if not keep or not all(x in (0.0, 1.0 / keep) for row in D for x in row):
        raise FixtureRefusedError("dropout.D", "another entry", "0 or 1 / (1 - p)")
    kept = tuple(tuple(j for j, x in enumerate(row) if x) for row in D)
    yield equal("kept coordinates a row", kept, ((0, 2), (1,)), source=DROPOUT)
    branch = scale(fixture.s, output(output(hadamard(D, fixture.X), start.A), start.B))
    difference = subtract(add(output(fixture.X, start.residual), branch), output(fixture.X, fixture.W))
    yield close("initial output change under dropout", difference, DROPPED, source=DROPOUT, digits=12)


def artifact_checks(fixture: PissaFixture, start: Split) -> Iterator[Check]:
    """Native on the residual, portable at rank 2r on W, and the wrong pairing between them."""
    B1, A1 = trained(fixture, start)
    base = start.residual if fixture.native_base == "residual" else fixture.W
    native = effective(start.residual, A1, B1, fixture.s)
    yield below("native base", distance(effective(base, A1, B1, fixture.s), native), 1e-14, source=ARTIFACT)
    delta_B, delta_A = portable_factors(start, B1, A1)
    B, A = (delta_B, delta_A) if fixture.portable == "trained_minus_initial" else (B1, A1)
    yield below("portable on W", distance(effective(fixture.W, A, B, fixture.s), native), 1e-14, source=ARTIFACT)
    yield equal("portable rank", (len(A), rank(matmul(B, A))), (2, 2), source=ARTIFACT)
    wrong = subtract(effective(fixture.W, A1, B1, fixture.s), native)
    yield close("wrong artifact squared error", squared_frobenius(wrong), 256.0, source=ARTIFACT, digits=10)
    on_residual = subtract(effective(start.residual, delta_A, delta_B, fixture.s), native)
    error = squared_frobenius(on_residual)
    yield close("portable labelled native, squared error", error, 256.0, source=ARTIFACT, digits=10)
    step = fixture.residual_step
    portable = effective(rounded(fixture.W, step), delta_A, delta_B, fixture.s)
    gap = distance(effective(rounded(start.residual, step), A1, B1, fixture.s), portable)
    yield close("quantized residual against quantized W", gap, 0.2, source=QUANTIZED, digits=1, tolerance=1e-12)


def evaluate(fixture: PissaFixture) -> Iterator[Check]:
    """Every check of V 0x06, in the order of its subsections."""
    d_out, d_in = shape(fixture.W)
    require_shape("X", fixture.X, (2, d_in))
    require_shape("G", fixture.G, (2, d_out))
    require_length("fast_start", fixture.fast_start, d_in)
    start = initialized(fixture)
    yield from split_checks(fixture, start)
    yield from gradient_checks(fixture, start)
    yield from step_checks(fixture, start)
    yield from fast_checks(fixture)
    yield from dropout_checks(fixture, start)
    yield from artifact_checks(fixture, start)


PRINCIPAL: Matrix = ((0.0, 9.6, 0.0), (0.0, 12.8, 0.0), (0.0, 0.0, 0.0))
RESIDUAL: Matrix = ((-7.2, 0.0, 0.0), (5.4, 0.0, 0.0), (0.0, 0.0, 1.0))
DROPPED: Matrix = outer((-4.0, 2.0), (4.8, 6.4, 0.0))
POWER_ENERGY = (81.0**3 + 256.0**3) / (81.0**2 + 256.0**2)
"""W^T W = diag(81, 256, 1), so one iteration from [1, 1, 0] points along [81, 256, 0]."""

ORACLE = Oracle(
    name="pissa",
    document="V",
    sections=("0x06A", "0x06B", "0x06C", "0x06D", "0x06E", "0x06F", "0x06G", "0x06H", "0x06I"),
    module=__name__,
    fixture=PissaFixture,
    evaluate=evaluate,
    proves=(
        "the scale-aware principal and residual split, its energy and tail, and the error of an omitted scale",
        "nonzero first gradients of both factors, and a first step that leaves the principal subspace",
        "native and portable artifacts of one weight, and the error of every wrong pairing",
    ),
    does_not_prove=(
        "that principal directions are best for a task",
        "the accuracy of any randomized SVD, or parity after a cast to a narrow dtype",
    ),
    own=("eta", "state", "fast_start", "dropout", "residual_step"),
)
