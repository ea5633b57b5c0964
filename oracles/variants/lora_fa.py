"""LoRA-FA: A is frozen and the gradient of B becomes a projection (V 0x05F to 0x05L).

Shapes: A [r, d_in]; B, H [d_out, r]; X [N, d_in]; G [N, d_out]; g_W = G^T X [d_out, d_in].
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.linalg import inverse, svd
from oracles.matrix import (
    Matrix,
    add,
    distance,
    identity,
    inner,
    matmul,
    max_abs,
    product,
    require_shape,
    scale,
    scale_rows,
    shape,
    squared_frobenius,
    subtract,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.variants.lora import backward, held_against_differences, require_factors

RAW, PROJECTION, TRACE = "V 0x05F", "V 0x05G", "V 0x05H"
LIVENESS, PINNED, BOUNDARY = "V 0x05I", "V 0x05J", "V 0x05L"

Count = Annotated[int, Field(gt=0)]


class SquareLayer(Fixture):
    """The paper's convention: batch b, sequence s_q, width d and rank r at two bytes an element."""

    batch: Count
    sequence: Count
    width: Count
    rank: Count


class LoraFaFixture(Fixture):
    """The two-by-three trace of V 0x05H; X = I and G = g_W^T give its printed dense gradient."""

    A: FixtureMatrix
    B: FixtureMatrix
    X: FixtureMatrix
    G: FixtureMatrix
    scales: FixtureVector
    correction: Literal["projected", "raw"]
    scale_power: Literal["inverse_square", "none"]
    regularization: Annotated[float, Field(gt=0)]
    singular: FixtureMatrix
    named_parameters: tuple[str, ...]
    activation_bytes: Count
    square_layer: SquareLayer


def gram(A: Matrix) -> Matrix:
    """A A^T, shape [r, r]."""
    return matmul(A, transpose(A))


def pseudoinverse(a: Matrix, cutoff: float = 1e-12) -> Matrix:
    """V Sigma^+ U^T; singular values below `cutoff` times the largest count as zero."""
    u, sigma, v = svd(a)
    inverted = tuple(1.0 / x if x > cutoff * sigma[0] else 0.0 for x in sigma)
    return matmul(v, scale_rows(inverted, transpose(u)))


def projector(A: Matrix) -> Matrix:
    """P_A = A^T (A A^T)^-1 A onto the row space of A; a singular A is refused."""
    return product(transpose(A), inverse(gram(A)), A)


def corrected(raw: Matrix, solve: Matrix, s: float, power: str = "inverse_square") -> Matrix:
    """H_B = g_B^raw (A A^T)^-1 / s^2 for the chosen solve of the Gram matrix."""
    return scale(1.0 / s**2 if power == "inverse_square" else 1.0, matmul(raw, solve))


def pairs_by_order(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The pinned helper's pairing: every two LoRA names in iteration order."""
    return tuple(names[i : i + 2] for i in range(0, len(names), 2))


def pairs_by_key(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """A and B of each module, joined by the module's name."""
    owners = dict.fromkeys(name.rpartition(".")[0] for name in names)
    return tuple((f"{owner}.lora_A", f"{owner}.lora_B") for owner in owners)


def ledger(N: int, d_in: int, d_out: int, r: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """(parameters, saved activation bytes, moment bytes) of LoRA, LoRA-FA and LoRA-FB."""
    both, only_B, only_A = r * (d_in + d_out), r * d_out, r * d_in
    return (
        (both, N * width * (d_in + r), 8 * both),
        (only_B, N * width * r, 8 * only_B),
        (only_A, N * width * d_in, 8 * only_A),
    )


def raw_checks(fixture: LoraFaFixture) -> Iterator[Check]:
    """Ordinary gradients, and the normal equation of the correction, against differences."""
    A, B, X, G, s = fixture.A, fixture.B, fixture.X, fixture.G, fixture.scales[1]
    W = zeros(len(B), shape(A)[1])
    dense = matmul(transpose(G), X)
    yield equal("dense gradient g_W", dense, DENSE, source=TRACE)
    grads = backward(W, A, B, s, X, G)
    yield equal("raw g_B at s = 1/2", grads["B"], ((0.75, 2.5), (1.5, -3.0)), source=RAW)
    yield equal("raw g_A at s = 1/2", grads["A"], ((-0.75, -0.875, 2.625), (-0.75, -1.625, 0.375)), source=RAW)
    held = held_against_differences(W, A, B, s, X, G)
    yield gradient("raw gradients against differences", held, 1e-8, source=RAW)

    def objective(p: Point) -> float:
        return squared_frobenius(subtract(scale(s, matmul(p["H"], A)), dense))

    def slope(H: Matrix) -> Matrix:
        return scale(2.0 * s, matmul(subtract(scale(s, matmul(H, A)), dense), transpose(A)))

    yield gradient("normal equation", compare(objective, {"H": B}, {"H": slope(B)}), 1e-8, source=PROJECTION)
    best = corrected(grads["B"], inverse(gram(A)), s)
    yield below("normal equation at H*", max_abs(slope(best)), 1e-14, source=PROJECTION)


def trace_checks(fixture: LoraFaFixture) -> Iterator[Check]:
    """A A^T, P_A, the corrected gradient at either scale, and what it cannot represent."""
    A, dense = fixture.A, matmul(transpose(fixture.G), fixture.X)
    yield equal("scales", fixture.scales, (1.0, 0.5), source=TRACE)
    yield equal("AAt", gram(A), ((2.0, 0.0), (0.0, 4.0)), source=TRACE)
    P = projector(A)
    yield equal("P_A", P, PROJECTOR, source=TRACE)
    yield equal("P_A is idempotent", matmul(P, P), P, source=PROJECTION)
    yield equal("g_W P_A", matmul(dense, P), PROJECTED, source=TRACE)
    for s in fixture.scales:
        raw = scale(s, matmul(dense, transpose(A)))
        H = corrected(raw, inverse(gram(A)), s, fixture.scale_power) if fixture.correction == "projected" else raw
        yield equal(f"s H_B* A at s = {s}", scale(s, matmul(H, A)), PROJECTED, source=TRACE)
        yield equal(f"descent <g_B, H_B*> at s = {s}", inner(raw, H), 20.875, source=PROJECTION)
        if s == 1.0:
            yield equal("H_B* at s = 1", H, ((0.75, 1.25), (1.5, -1.5)), source=TRACE)
    rest = subtract(dense, matmul(dense, P))
    energies = tuple(map(squared_frobenius, (matmul(dense, P), rest, dense)))
    yield equal("projected, residual and whole energy", energies, (20.875, 24.625, 45.5), source=TRACE)


def pinned_checks(fixture: LoraFaFixture) -> Iterator[Check]:
    """The helper's regularised pseudoinverse, its pairing by order and its one global scale."""
    A, dense = fixture.A, matmul(transpose(fixture.G), fixture.X)
    raw = matmul(dense, transpose(A))
    solve = pseudoinverse(add(gram(A), scale(fixture.regularization, identity(len(A)))))
    gap = distance(corrected(raw, solve, 1.0), corrected(raw, inverse(gram(A)), 1.0))
    yield close("regularization 1e-8 moves H_B*", gap, 7.5e-9, source=PINNED, digits=10, tolerance=1e-14)
    names = fixture.named_parameters
    yield equal("pairs by order", pairs_by_order(names), ORDERED, source=PINNED)
    yield equal("pairs by key", pairs_by_key(names), KEYED, source=PINNED)
    local = scale(fixture.scales[1], raw)
    induced = scale(fixture.scales[1], matmul(corrected(local, inverse(gram(A)), fixture.scales[0]), A))
    yield equal("a global scale 1 over a module of 1/2", induced, scale(0.25, PROJECTED), source=PINNED)


def singular_checks(fixture: LoraFaFixture) -> Iterator[Check]:
    """A singular A has no inverse; its pseudoinverse still projects. The raw gradient does not."""
    A = fixture.singular
    yield equal("singular A is refused", refused(A), True, source=PROJECTION)
    P = product(transpose(A), pseudoinverse(gram(A)), A)
    gap = distance(P, ((0.5, 0.0, 0.5), (0.0, 0.0, 0.0), (0.5, 0.0, 0.5)))
    yield below("pseudoinverse projector of the singular A", gap, 1e-14, source=PROJECTION)
    yield equal("singular A", A, ((1.0, 0.0, 1.0), (2.0, 0.0, 2.0)), source=PROJECTION)
    dense = matmul(transpose(fixture.G), fixture.X)
    uncorrected = matmul(matmul(dense, transpose(fixture.A)), fixture.A)
    yield above("the raw gradient is no projection", distance(uncorrected, PROJECTED), 1.0, source=RAW)
    dead = backward(zeros(*shape(dense)), fixture.A, zeros(*shape(fixture.B)), 1.0, fixture.X, fixture.G)
    yield equal("LoRA-FB from a zero B stays dead", max_abs(dead["A"]), 0.0, source=BOUNDARY)


def refused(A: Matrix) -> bool:
    """Whether the exact projector refuses this A."""
    try:
        projector(A)
    except FixtureRefusedError:
        return True
    return False


def liveness_checks(fixture: LoraFaFixture) -> Iterator[Check]:
    """Parameters, adapter-local saved activations and moment bytes; the paper's square layer."""
    (N, d_in), (d_out, r) = shape(fixture.X), shape(fixture.B)
    rows = ledger(N, d_in, d_out, r, fixture.activation_bytes)
    yield equal("LoRA parameters, activation and moment bytes", rows[0], (10, 30, 80), source=LIVENESS)
    yield equal("LoRA-FA parameters, activation and moment bytes", rows[1], (4, 12, 32), source=LIVENESS)
    yield equal("LoRA-FB parameters, activation and moment bytes", rows[2], (6, 18, 48), source=LIVENESS)
    q = fixture.square_layer
    square = ledger(q.batch * q.sequence, q.width, q.width, q.rank, fixture.activation_bytes)
    activations = tuple(row[1] for row in square)
    yield equal("square layer activation bytes", activations, (68157440, 1048576, 67108864), source=LIVENESS)


def evaluate(fixture: LoraFaFixture) -> Iterator[Check]:
    """Every check of V 0x05F to 0x05L, in the order of its subsections."""
    require_factors(zeros(2, 3), fixture.A, fixture.B)
    require_shape("X", fixture.X, (len(fixture.X), 3))
    require_shape("G", fixture.G, (len(fixture.X), 2))
    require_shape("singular", fixture.singular, (2, 3))
    if len(fixture.scales) != 2 or 0.0 in fixture.scales:
        raise FixtureRefusedError("scales", list(fixture.scales), "two non-zero scales")
    yield from raw_checks(fixture)
    yield from trace_checks(fixture)
    yield from liveness_checks(fixture)
    yield from pinned_checks(fixture)
    yield from singular_checks(fixture)


DENSE: Matrix = ((1.0, 2.5, 0.5), (-2.0, -3.0, 5.0))
PROJECTOR: Matrix = ((0.5, 0.0, 0.5), (0.0, 1.0, 0.0), (0.5, 0.0, 0.5))
PROJECTED: Matrix = ((0.75, 2.5, 0.75), (1.5, -3.0, 1.5))
ORDERED = (("q.lora_A", "q.lora_B"), ("v.lora_B", "v.lora_A"))
KEYED = (("q.lora_A", "q.lora_B"), ("v.lora_A", "v.lora_B"))

ORACLE = Oracle(
    name="lora_fa",
    document="V",
    sections=("0x05F", "0x05G", "0x05H", "0x05I", "0x05J", "0x05L"),
    module=__name__,
    fixture=LoraFaFixture,
    evaluate=evaluate,
    proves=(
        "the corrected gradient of B as the projection of the dense gradient, at any scale, and its residual",
        "parameter, activation and moment ledgers of LoRA, LoRA-FA and LoRA-FB",
        "the pinned helper's regularised solve, its pairing by order and its global scale",
    ),
    does_not_prove=(
        "that any dense gradient is recovered outside the row space of A",
        "whole-model activation memory, or kernel time saved by freezing A",
    ),
    own=("B", "X", "G", "scales", "singular", "named_parameters", "activation_bytes"),
)
