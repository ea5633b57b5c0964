"""One shared factor instead of J: what it saves, what it can no longer represent, how its gradients couple (R 0x04).

Shapes: X [T, d_in], W0 [d_out, d_in], A [r, d_in], B_i [d_out, r], R [J, d_in]; s = alpha / r. Which factor is shared
is a matter of names: `A` or `B` is one object that every expert reads, `A0`, `A1`, ... are separate objects.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare, coordinates
from oracles.linalg import inverse, qr, rank
from oracles.matrix import (
    Matrix,
    add,
    distance,
    frobenius,
    hadamard,
    identity,
    matmul,
    max_abs,
    require_shape,
    scale,
    scale_rows,
    softmax,
    squared_frobenius,
    subtract,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, Oracle
from oracles.routed.mixture import Expert, credits, expert_backward, expert_output, mix, router_backward

LEDGER, CLASS, TRACE = "R 0x04B", "R 0x04C", "R 0x04D"
GAUGE, ZERO, SCHEDULE, SHARED_B, WITNESS = "R 0x04A", "R 0x04E", "R 0x04F", "R 0x04G", "R 0x04H"

Variant = Literal["independent", "shared_A", "shared_B"]
VARIANTS: tuple[Variant, ...] = ("independent", "shared_A", "shared_B")
T, D_IN, D_OUT, RANK, J = 3, 4, 3, 2, 3

Triple = tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]


class Pair(Fixture):
    """A factor pair of the rank witness."""

    A: FixtureMatrix
    B: FixtureMatrix


class SharedFixture(Fixture):
    """The teaching layer; the document prints its dimensions, the tensors are ours."""

    X: FixtureMatrix
    W0: FixtureMatrix
    A: FixtureMatrix
    B: Triple
    R: FixtureMatrix
    alpha: float
    A_independent: Triple
    B_shared: FixtureMatrix
    target: FixtureMatrix
    eta: float
    budget: Annotated[int, Field(ge=1)]
    gauge: FixtureMatrix
    kept: tuple[tuple[Literal[0, 1], ...], ...]
    rank_witness: tuple[Pair, Pair, Pair]


def factor_parameters(variant: Variant, r: int) -> int:
    """J r (d_in + d_out), r d_in + J r d_out, or J r d_in + r d_out."""
    A_objects = 1 if variant == "shared_A" else J
    B_objects = 1 if variant == "shared_B" else J
    return r * (A_objects * D_IN + B_objects * D_OUT)


def largest_rank(variant: Variant, budget: int) -> int:
    """The largest integer rank whose factors fit the budget."""
    return budget // factor_parameters(variant, 1)


def factors(fixture: SharedFixture, variant: Variant) -> dict[str, Matrix]:
    """The factor objects of a variant by name."""
    A = {"A": fixture.A} if variant == "shared_A" else {f"A{i}": a for i, a in enumerate(fixture.A_independent)}
    B = {"B": fixture.B_shared} if variant == "shared_B" else {f"B{i}": b for i, b in enumerate(fixture.B)}
    return A | B


def start(fixture: SharedFixture, variant: Variant) -> dict[str, Matrix]:
    """Every coordinate that is differentiated: X, the factor objects, the router."""
    return {"X": fixture.X, **factors(fixture, variant), "R": fixture.R}


def owner(point: Point, side: str, i: int) -> str:
    """The object expert i reads: the shared one where it exists."""
    return side if side in point else f"{side}{i}"


def experts(fixture: SharedFixture, point: Point) -> tuple[Expert, ...]:
    """The J experts as views of the factor objects."""
    s = fixture.alpha / RANK
    return tuple(Expert(point[owner(point, "A", i)], point[owner(point, "B", i)], s) for i in range(J))


def gates(point: Point) -> Matrix:
    """G = softmax(X R^T) over the experts."""
    return tuple(softmax(row) for row in matmul(point["X"], transpose(point["R"])))


def output(fixture: SharedFixture, point: Point) -> Matrix:
    """Y = X W0^T + sum_i Diag(G[:, i]) s X A_i^T B_i^T."""
    E = tuple(expert_output(point["X"], expert) for expert in experts(fixture, point))
    return add(matmul(point["X"], transpose(fixture.W0)), mix(gates(point), E))


def loss(fixture: SharedFixture, point: Point) -> float:
    """|Y - target|_F^2 / 2."""
    return squared_frobenius(subtract(output(fixture, point), fixture.target)) / 2.0


def backward(fixture: SharedFixture, point: Point) -> dict[str, Matrix]:
    """Gradients by object: what several experts share accumulates all of their credit."""
    G, D = gates(point), subtract(output(fixture, point), fixture.target)
    members = experts(fixture, point)
    dL = router_backward(G, credits(D, tuple(expert_output(point["X"], e) for e in members)))
    found = {"X": add(matmul(D, fixture.W0), matmul(dL, point["R"])), "R": matmul(transpose(dL), point["X"])}
    for i, (expert, g) in enumerate(zip(members, transpose(G), strict=True)):
        part = expert_backward(point["X"], expert, scale_rows(g, D))
        for name, term in (("X", part.X), (owner(point, "A", i), part.A), (owner(point, "B", i), part.B)):
            found[name] = add(found[name], term) if name in found else term
    return {name: found[name] for name in point}


def latent_backward(fixture: SharedFixture, point: Point) -> Matrix:
    """dA = (sum_i U_i B_i)^T X: all readouts meet in one latent gradient first."""
    D = subtract(output(fixture, point), fixture.target)
    s = fixture.alpha / RANK
    U = tuple(scale(s, scale_rows(g, D)) for g in transpose(gates(point)))
    dZ = add(*(matmul(u, point[f"B{i}"]) for i, u in enumerate(U)))
    return matmul(transpose(dZ), point["X"])


def effective(fixture: SharedFixture, point: Point) -> tuple[Matrix, ...]:
    """Delta W_eff(x_t) = s (sum_i g_i(x_t) B_i) A for every token."""
    members = experts(fixture, point)
    return tuple(
        add(*(scale(g * e.s, matmul(e.B, e.A)) for g, e in zip(row, members, strict=True))) for row in gates(point)
    )


def outside_rows(update: Matrix, A: Matrix) -> float:
    """How much of the rows of `update` lies outside row(A): largest entry left after projection."""
    Q = transpose(transpose(qr(transpose(A))[0])[: len(A)])
    return max_abs(subtract(update, matmul(matmul(update, Q), transpose(Q))))


def ledger_checks(fixture: SharedFixture) -> Iterator[Check]:
    """Objects, parameters, optimizer state, and the ranks one budget buys."""
    counted = {v: sum(len(m) * len(m[0]) for m in factors(fixture, v).values()) for v in VARIANTS}
    yield equal("factor parameters", tuple(counted.values()), (42, 26, 30), source=LEDGER)
    formula = tuple(factor_parameters(v, RANK) for v in VARIANTS)
    yield equal("factor parameters by formula", formula, (42, 26, 30), source=LEDGER)
    saved = counted["independent"] - counted["shared_A"]
    yield equal("saved by sharing A: (J - 1) r d_in", (saved, (J - 1) * RANK * D_IN), (16, 16), source=LEDGER)
    router = len(fixture.R) * len(fixture.R[0])
    yield equal("router parameters", router, 12, source=LEDGER)
    yield equal("factors and router", tuple(n + router for n in counted.values()), (54, 38, 42), source=LEDGER)
    yield equal("weight and two moments", tuple(3 * n for n in counted.values()), (126, 78, 90), source=LEDGER)
    yield equal("factor budget", fixture.budget, 120, source=LEDGER)
    ranks = tuple(largest_rank(v, fixture.budget) for v in VARIANTS)
    yield equal("largest rank under the budget", ranks, (5, 9, 8), source=LEDGER)
    yield equal(
        "parameters at those ranks", tuple(map(factor_parameters, VARIANTS, ranks)), (105, 117, 120), source=LEDGER
    )
    total = sum(len(tuple(coordinates(start(fixture, v)))) for v in VARIANTS)
    yield equal("coordinates of the three variants", total, 170, source=WITNESS)


def flop_checks() -> Iterator[Check]:
    """Two FLOPs a multiply-add: A once or once an expert, the readouts, the router."""
    once = 2 * T * D_IN * RANK
    readouts = 2 * T * RANK * D_OUT * J
    router = 2 * T * D_IN * J
    yield equal("FLOPs of A once and in the loop", (once, J * once), (48, 144), source=SCHEDULE)
    yield equal("FLOPs of readouts and router", (readouts, router), (108, 72), source=SCHEDULE)


def output_checks(fixture: SharedFixture) -> Iterator[Check]:
    """Each variant's output on the own tensors, computed apart."""
    for variant in VARIANTS:
        Y = output(fixture, start(fixture, variant))
        yield close(f"{variant} output", Y, OUTPUTS[variant], source=TRACE, digits=9)
    losses = tuple(loss(fixture, start(fixture, variant)) for variant in VARIANTS)
    yield close("losses", losses, (3.951782513, 3.390971154, 3.695139162), source=TRACE, digits=9)


def class_checks(fixture: SharedFixture) -> Iterator[Check]:
    """The rank-3 sum no shared factor of rank 2 reaches, and the subspaces sharing confines updates to."""
    updates = tuple(matmul(pair.B, pair.A) for pair in fixture.rank_witness)
    for pair in fixture.rank_witness:
        require_shape("rank_witness.A", pair.A, (RANK, D_IN))
    total = add(*updates)
    shares = tuple(tuple(update[i][i] for i in range(D_OUT)) for update in updates)
    yield equal("shares of the sum", shares, ((1.0, 0.5, 0.0), (0.0, 0.5, 0.5), (0.0, 0.0, 0.5)), source=CLASS)
    yield equal("independent sum", total, tuple((*row, 0.0) for row in identity(3)), source=CLASS)
    bounds = (rank(total), rank(fixture.A), rank(fixture.B_shared))
    yield equal("rank of the sum, of shared A, of shared B", bounds, (3, 2, 2), source=CLASS)
    in_rows = max(outside_rows(matmul(B, fixture.A), fixture.A) for B in fixture.B)
    yield below("updates stay in the rows of shared A", in_rows, 1e-14, source=CLASS)
    in_columns = (transpose(matmul(fixture.B_shared, A)) for A in fixture.A_independent)
    outside = max(outside_rows(update, transpose(fixture.B_shared)) for update in in_columns)
    yield below("updates stay in the columns of shared B", outside, 1e-14, source=SHARED_B)
    yield above("the rank-3 sum leaves the rows of shared A", outside_rows(total, fixture.A), 0.1, source=CLASS)
    tokens = effective(fixture, start(fixture, "shared_A"))
    yield equal("ranks of the token matrices", tuple(map(rank, tokens)), (2, 2, 2), source=CLASS)
    spread = max(distance(a, b) for a, b in combinations(tokens, 2))
    yield close("largest difference of token matrices", spread, 0.183869626, source=CLASS, digits=9)


def gauge_checks(fixture: SharedFixture) -> Iterator[Check]:
    """(B S^-1)(S A) = B A: raw factors move, the function does not."""
    point = start(fixture, "shared_A")
    require_shape("gauge", fixture.gauge, (RANK, RANK))
    S, S_inverse = fixture.gauge, inverse(fixture.gauge)
    other = {**point, "A": matmul(S, fixture.A), **{f"B{i}": matmul(B, S_inverse) for i, B in enumerate(fixture.B)}}
    move = frobenius(subtract(other["A"], fixture.A))
    yield equal("gauge", S, ((1.0, 0.25), (-0.5, 0.75)), source=GAUGE)
    yield close("the gauge moves A", move, 0.446339277, source=GAUGE, digits=9)
    change = distance(output(fixture, other), output(fixture, point))
    yield below("the gauge leaves the output", change, 2e-15, source=GAUGE)


def clone_checks(fixture: SharedFixture) -> Iterator[Check]:
    """Value-equal copies of A: the same output, the summed gradient, another trajectory."""
    point = start(fixture, "shared_A")
    clones = {name: value for name, value in point.items() if name != "A"} | {f"A{i}": fixture.A for i in range(J)}
    apart = backward(fixture, clones)
    error = distance(output(fixture, clones), output(fixture, point))
    yield equal("clone forward difference", error, 0.0, source=TRACE)
    summed = add(*(apart[f"A{i}"] for i in range(J)))
    latent = latent_backward(fixture, point)
    yield below("shared dA is the sum of clone gradients", distance(latent, summed), 1e-15, source=TRACE)
    stepped = tuple(subtract(fixture.A, scale(fixture.eta, apart[f"A{i}"])) for i in range(J))
    divergence = max(distance(a, b) for a, b in combinations(stepped, 2))
    yield close("clones diverge after one step", divergence, 0.098525477, source=TRACE, digits=9)
    synchronized = subtract(fixture.A, scale(fixture.eta, latent))
    yield above("no clone is the shared factor", min(distance(synchronized, A) for A in stepped), 0.01, source=TRACE)


def norms(found: Mapping[str, Matrix]) -> tuple[float, ...]:
    """|dA|, |dR|, |dB_0|, |dB_1|, |dB_2|."""
    return tuple(frobenius(found[name]) for name in ("A", "R", "B0", "B1", "B2"))


def zero_checks(fixture: SharedFixture) -> Iterator[Check]:
    """B_i = 0 is a schedule: only the readouts move first."""
    point = start(fixture, "shared_A")
    opened = {**point, **{f"B{i}": zeros(D_OUT, RANK) for i in range(J)}}
    first = backward(fixture, opened)
    update = subtract(output(fixture, opened), matmul(fixture.X, transpose(fixture.W0)))
    yield equal("zero B gives no update", max_abs(update), 0.0, source=ZERO)
    yield equal("first gradients of A and R", norms(first)[:2], (0.0, 0.0), source=ZERO)
    printed = (0.344888158, 0.455034316, 0.275705194)
    yield close("first gradients of the readouts", norms(first)[2:], printed, source=ZERO, digits=9)
    moved = {f"B{i}": scale(-fixture.eta, first[f"B{i}"]) for i in range(J)}
    second = norms(backward(fixture, {**opened, **moved}))[:2]
    yield close("then A and R receive gradients", second, (0.154476192, 0.011047092), source=ZERO, digits=9)


def looped(fixture: SharedFixture, inputs: tuple[Matrix, ...]) -> Matrix:
    """The update with A recomputed on the input of every branch."""
    point = start(fixture, "shared_A")
    outputs = (expert_output(x, e) for x, e in zip(inputs, experts(fixture, point), strict=True))
    return mix(gates(point), tuple(outputs))


def hoisted(fixture: SharedFixture, X: Matrix) -> Matrix:
    """The update with Z = X A^T computed once."""
    Z = matmul(X, transpose(fixture.A))
    readouts = tuple(scale(fixture.alpha / RANK, matmul(Z, transpose(B))) for B in fixture.B)
    return mix(gates(start(fixture, "shared_A")), readouts)


def dropout_checks(fixture: SharedFixture) -> Iterator[Check]:
    """Hoisting X A^T is exact for one mask and wrong for a mask a branch."""
    kept = fixture.kept
    yield equal("kept inputs a branch", kept, ((1, 0, 1, 1), (0, 1, 1, 1), (1, 1, 0, 1)), source=SCHEDULE)
    branches = tuple(hadamard(fixture.X, (tuple(k / 0.75 for k in mask),) * T) for mask in kept)
    same = distance(looped(fixture, (fixture.X,) * J), hoisted(fixture, fixture.X))
    yield below("hoisting under identity dropout", same, 1e-15, source=SCHEDULE)
    masked = distance(looped(fixture, branches), hoisted(fixture, branches[0]))
    yield above("hoisting under a mask a branch", masked, 0.1, source=SCHEDULE)


def gradient_checks(fixture: SharedFixture) -> Iterator[Check]:
    """Every coordinate of the three variants against central differences."""
    for variant in VARIANTS:
        point = start(fixture, variant)
        difference = compare(partial(loss, fixture), point, backward(fixture, point))
        yield gradient(f"{variant} gradients", difference, 8e-8, source=WITNESS)


def evaluate(fixture: SharedFixture) -> Iterator[Check]:
    """Every check of R 0x04."""
    require_shape("X", fixture.X, (T, D_IN))
    require_shape("W0", fixture.W0, (D_OUT, D_IN))
    require_shape("target", fixture.target, (T, D_OUT))
    for A in (fixture.A, *fixture.A_independent):
        require_shape("A", A, (RANK, D_IN))
    for B in (fixture.B_shared, *fixture.B):
        require_shape("B", B, (D_OUT, RANK))
    require_shape("R", fixture.R, (J, D_IN))
    yield from ledger_checks(fixture)
    yield from flop_checks()
    yield from output_checks(fixture)
    yield from class_checks(fixture)
    yield from gauge_checks(fixture)
    yield from clone_checks(fixture)
    yield from zero_checks(fixture)
    yield from dropout_checks(fixture)
    yield from gradient_checks(fixture)


OUTPUTS: dict[Variant, Matrix] = {
    "independent": (
        (0.322812929, -0.503000448, 0.260843946),
        (0.486420537, -0.467391743, 0.389134163),
        (-0.674317798, 1.218233408, -0.854846021),
    ),
    "shared_A": (
        (0.287301807, -0.422213177, 0.310665524),
        (0.370729776, -0.346846088, 0.45745966),
        (-0.352915587, 1.130500065, -0.7403354),
    ),
    "shared_B": (
        (0.502637213, -0.515548401, 0.257843126),
        (0.568883237, -0.566329101, 0.26871459),
        (-0.612830918, 1.188946355, -0.848212841),
    ),
}

ORACLE = Oracle(
    name="shared_factor",
    document="R",
    sections=("0x04A", "0x04B", "0x04C", "0x04D", "0x04E", "0x04F", "0x04G", "0x04H"),
    module=__name__,
    fixture=SharedFixture,
    evaluate=evaluate,
    proves=(
        "parameter, optimizer and FLOP ledgers of independent, shared-A and shared-B factors",
        "gradients of all three ownerships; the shared gradient is the sum of its clones, which then diverge",
        "a rank-3 sum outside the shared class, gauge freedom of raw factors, the zero-B schedule, hoisting A",
    ),
    does_not_prove=(
        "that tasks share an input subspace, or any quality of a shared factor",
        "that an implementation reuses the projection it may reuse; the norms the document prints for its own tensors",
    ),
    own=(
        "X",
        "W0",
        "A",
        "B",
        "R",
        "alpha",
        "A_independent",
        "B_shared",
        "target",
        "eta",
        "gauge",
        "kept",
        "rank_witness",
    ),
    document_mutations=88,
)
