"""SwitchHead: value experts before and output experts after a fixed set of attention maps (C 0x03).

Shapes, one batch item: X_q, G, Y [S_q, d]; X_kv [S_kv, d]; per head h: W_Q, W_K [d, d_h], W_V_e [d, d_h],
W_O_e [d_h, d], R_S, R_D [d, E]. Experts and heads are counted from 0.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from oracles.checks import Check, above, close, equal, gradient
from oracles.conditional.attention import attend, attend_backward, row_times, scaled, sigmoid, stable_top, weighted_sum
from oracles.differences import Point, compare
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    dot,
    inner,
    matmul,
    outer,
    require_length,
    require_shape,
    shape,
    softmax,
    softmax_backward,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle

UNION, FAMILY, TRACE, BACKWARD = "C 0x03B", "C 0x03C", "C 0x03E", "C 0x03F"
MAPS, LEDGER, CACHE, CLOSURE = "C 0x03G", "C 0x03H", "C 0x03I", "C 0x03N"

HEADS, EXPERTS = 2, 3
Bank = tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]


class SwitchheadFixture(Fixture):
    """Tensors of ours in the dimensions of C 0x03N, and the destination-only head choice of C 0x03B."""

    X_q: FixtureMatrix
    X_kv: FixtureMatrix
    W_Q: tuple[FixtureMatrix, FixtureMatrix]
    W_K: tuple[FixtureMatrix, FixtureMatrix]
    W_V: tuple[Bank, Bank]
    W_O: tuple[Bank, Bank]
    R_S: tuple[FixtureMatrix, FixtureMatrix]
    R_D: tuple[FixtureMatrix, FixtureMatrix]
    k_source: int
    k_destination: int
    visible: tuple[tuple[bool, ...], ...]
    G: FixtureMatrix
    gate: Literal["sigmoid", "selected_softmax"]
    selection: Literal["separate", "destination_reuses_source"]
    tied_row: FixtureVector
    tie_break: Literal["lower_id_first", "higher_id_first"]
    head_choice: tuple[tuple[int, ...], ...]


class Route(NamedTuple):
    """One router row of one head: ordered ids and their gates, not normalised over the selection."""

    ids: tuple[int, ...]
    gates: Vector


class Head(NamedTuple):
    """One attention map with the routes on both sides of it."""

    source: tuple[Route, ...]
    destination: tuple[Route, ...]
    K: Matrix
    V_mix: Matrix
    Q: Matrix
    A: Matrix
    U: Matrix


def parameters(fixture: SwitchheadFixture) -> dict[str, Matrix]:
    """The six banks, by name."""
    banks: dict[str, Matrix] = {}
    for h in range(HEADS):
        banks |= {f"W_Q{h}": fixture.W_Q[h], f"W_K{h}": fixture.W_K[h]}
        banks |= {f"R_S{h}": fixture.R_S[h], f"R_D{h}": fixture.R_D[h]}
        banks |= {f"W_V{h}{e}": W for e, W in enumerate(fixture.W_V[h])}
        banks |= {f"W_O{h}{e}": W for e, W in enumerate(fixture.W_O[h])}
    return banks


def select(fixture: SwitchheadFixture, z: Vector, k: int) -> tuple[int, ...]:
    """StableTopK under the fixture's tie policy."""
    return stable_top(z, k, later_first=fixture.tie_break == "higher_id_first")


def route(fixture: SwitchheadFixture, X: Matrix, R: Matrix, k: int) -> tuple[Route, ...]:
    """Top-k of the logits x R; gates are sigmoids, gathered and left unnormalised."""
    routes: list[Route] = []
    for x in X:
        z = row_times(x, R)
        ids = select(fixture, z, k)
        chosen = tuple(z[e] for e in ids)
        gates = softmax(chosen) if fixture.gate == "selected_softmax" else tuple(map(sigmoid, chosen))
        routes.append(Route(ids, gates))
    return tuple(routes)


def run_head(fixture: SwitchheadFixture, point: Point, h: int) -> Head:
    """Mix V, form the map on H_A alone, read the mixture."""
    X_q, X_kv = fixture.X_q, fixture.X_kv
    source = route(fixture, X_kv, point[f"R_S{h}"], fixture.k_source)
    destination = route(fixture, X_q, point[f"R_D{h}"], fixture.k_destination)
    if fixture.selection == "destination_reuses_source":
        destination = source[: len(X_q)]
    V_mix = tuple(
        weighted_sum(one.gates, tuple(row_times(x, point[f"W_V{h}{e}"]) for e in one.ids))
        for x, one in zip(X_kv, source, strict=True)
    )
    Q, K = matmul(X_q, point[f"W_Q{h}"]), matmul(X_kv, point[f"W_K{h}"])
    attended = tuple(attend(q, K, V_mix, seen) for q, seen in zip(Q, fixture.visible, strict=True))
    return Head(source, destination, K, V_mix, Q, tuple(a for a, _ in attended), tuple(u for _, u in attended))


def heads(fixture: SwitchheadFixture, point: Point) -> tuple[Head, ...]:
    """Every computed attention map."""
    return tuple(run_head(fixture, point, h) for h in range(HEADS))


def output(point: Point, computed: tuple[Head, ...]) -> Matrix:
    """Y = sum over heads and slots of g^D (U W_O)."""
    return add(
        *(
            tuple(
                weighted_sum(one.gates, tuple(row_times(u, point[f"W_O{h}{e}"]) for e in one.ids))
                for u, one in zip(head.U, head.destination, strict=True)
            )
            for h, head in enumerate(computed)
        )
    )


def logit_gradient(fixture: SwitchheadFixture, one: Route, grad_g: Vector) -> Vector:
    """dL/dz over all E logits: g (1 - g) dL/dg for selected experts, 0 for the others, no cross term."""
    if fixture.gate == "selected_softmax":
        local = softmax_backward(one.gates, grad_g)
    else:
        local = tuple(g * (1.0 - g) * x for g, x in zip(one.gates, grad_g, strict=True))
    inside = dict(zip(one.ids, local, strict=True))
    return tuple(inside.get(e, 0.0) for e in range(EXPERTS))


def backward(fixture: SwitchheadFixture, computed: tuple[Head, ...]) -> dict[str, Matrix]:
    """The gradients of L = <G, Y> in all six banks, both memberships held."""
    at = parameters(fixture)
    grads = {name: zeros(*shape(value)) for name, value in at.items()}

    def accumulate(name: str, left: Vector, right: Vector) -> None:
        grads[name] = add(grads[name], outer(left, right))

    for h, head in enumerate(computed):
        grad_K, grad_V = zeros(*shape(head.K)), zeros(*shape(head.V_mix))
        for t, (x, g, one) in enumerate(zip(fixture.X_q, fixture.G, head.destination, strict=True)):
            u = head.U[t]
            for gate, e in zip(one.gates, one.ids, strict=True):
                accumulate(f"W_O{h}{e}", scaled(gate, u), g)
            grad_g = tuple(dot(g, row_times(u, at[f"W_O{h}{e}"])) for e in one.ids)
            accumulate(f"R_D{h}", x, logit_gradient(fixture, one, grad_g))
            back = tuple(row_times(g, transpose(at[f"W_O{h}{e}"])) for e in one.ids)
            grad_q, row_K, row_V = attend_backward(
                head.Q[t], head.K, head.V_mix, head.A[t], weighted_sum(one.gates, back)
            )
            grad_K, grad_V = add(grad_K, row_K), add(grad_V, row_V)
            accumulate(f"W_Q{h}", x, grad_q)
        for s, (x, one) in enumerate(zip(fixture.X_kv, head.source, strict=True)):
            for gate, e in zip(one.gates, one.ids, strict=True):
                accumulate(f"W_V{h}{e}", scaled(gate, x), grad_V[s])
            grad_g = tuple(dot(grad_V[s], row_times(x, at[f"W_V{h}{e}"])) for e in one.ids)
            accumulate(f"R_S{h}", x, logit_gradient(fixture, one, grad_g))
            accumulate(f"W_K{h}", x, grad_K[s])
    return grads


def union_checks(fixture: SwitchheadFixture) -> Iterator[Check]:
    """Destination-only head routing: two heads a destination, all four source projections."""
    union = sorted({head for chosen in fixture.head_choice for head in chosen})
    yield equal("heads by destination", fixture.head_choice, ((0, 1), (1, 2), (2, 3)), source=UNION)
    yield equal("union of required source projections", tuple(union), (0, 1, 2, 3), source=UNION)


def forward_checks(fixture: SwitchheadFixture, computed: tuple[Head, ...]) -> Iterator[Check]:
    """Separate routes, unnormalised gates, one map a head, and the output."""
    source = tuple(tuple(one.ids for one in head.source) for head in computed)
    destination = tuple(tuple(one.ids for one in head.destination) for head in computed)
    yield equal("source ids", source, SOURCE_IDS, source=FAMILY)
    yield equal("destination ids", destination, DESTINATION_IDS, source=FAMILY)
    yield equal("ties: lower id first", select(fixture, fixture.tied_row, 2), (1, 0), source=CLOSURE)
    yield close("tied row", fixture.tied_row, (0.25, 0.5, 0.25), source=CLOSURE, digits=3)
    rows = [one for head in computed for one in (*head.source, *head.destination)]
    smallest = min(abs(math.fsum(one.gates) - 1.0) for one in rows)
    yield above("no row of selected gates sums to 1", smallest, 0.05, source=FAMILY)
    yield equal("A shape", (1, len(computed), *shape(computed[0].A)), (1, 2, 2, 3), source=TRACE)
    yield close("V_mix", tuple(head.V_mix for head in computed), MIXED, source=TRACE, digits=12)
    yield close("Y", output(parameters(fixture), computed), OUTPUT, source=TRACE, digits=12)


def backward_checks(fixture: SwitchheadFixture, computed: tuple[Head, ...]) -> Iterator[Check]:
    """Noncompetitive gates, and six banks against central differences."""
    at = parameters(fixture)
    yield close("loss <G, Y>", inner(fixture.G, output(at, computed)), LOSS, source=BACKWARD, digits=12)
    grads = backward(fixture, computed)
    yield close("grad R_S of head 0", grads["R_S0"], GRAD_R_S0, source=BACKWARD, digits=12)
    one = computed[0].source[0]
    alone = logit_gradient(fixture, one, (1.0, 0.0))
    yield equal(
        "credit of one gate moves one logit", tuple(x != 0.0 for x in alone), (True, False, False), source=BACKWARD
    )
    for bank in ("W_Q", "W_K", "W_V", "W_O", "R_S", "R_D"):
        part = {name: value for name, value in at.items() if name.startswith(bank)}
        difference = compare(
            lambda p: inner(fixture.G, output({**at, **p}, heads(fixture, {**at, **p}))),
            part,
            {name: grads[name] for name in part},
        )
        yield gradient(f"grad {bank}", difference, 5e-11, source=BACKWARD)


def ledger_checks(fixture: SwitchheadFixture) -> Iterator[Check]:
    """Map elements, parameters, the complete MAC list and the paper's two formulas."""
    (S_q, d), S_kv, d_h = shape(fixture.X_q), len(fixture.X_kv), shape(fixture.W_Q[0])[1]
    dimensions = (S_q, S_kv, d, HEADS, EXPERTS, fixture.k_source, fixture.k_destination, d_h)
    yield equal("S_q, S_kv, d, H_A, E, k_S, k_D, d_h", dimensions, (2, 3, 2, 2, 3, 2, 2, 2), source=CLOSURE)
    yield equal("map elements", HEADS * S_q * S_kv, 12, source=MAPS)
    yield equal("map elements of a dense bank", HEADS * EXPERTS * S_q * S_kv, 36, source=MAPS)
    split = (2 * HEADS * d * d_h, 2 * HEADS * EXPERTS * d * d_h, 2 * HEADS * d * EXPERTS)
    yield equal("parameters: Q/K, V/O, routers", split, (16, 48, 24), source=LEDGER)
    yield equal("parameters", sum(split), 88, source=LEDGER)
    operations = macs(S_q, S_kv, d, d_h, fixture.k_source, fixture.k_destination)
    yield equal("MACs by operation", operations, (16, 24, 36, 48, 24, 24, 24, 24, 32, 16), source=LEDGER)
    yield equal("MACs", sum(operations), 268, source=LEDGER)
    active = HEADS * (d * d_h + fixture.k_source * d * d_h + d * EXPERTS)
    yield equal("active parameters, one source row", active, 36, source=LEDGER)
    yield equal("paper MACs at T = 2, C = 1, k = 2", paper_macs(2, 1, 2, d, d_h), 192, source=LEDGER)
    memory = HEADS * (4 * 2 * d_h + 2 * 2**2 + 2 * 2 * d_h)
    yield equal("paper training floats at T = 2, C = 1", memory, 64, source=LEDGER)


def macs(S_q: int, S_kv: int, d: int, d_h: int, k_S: int, k_D: int) -> tuple[int, ...]:
    """The ten rows of the table of C 0x03H, in its order, for one batch item."""
    attention = HEADS * S_q * S_kv * d_h
    return (
        S_q * HEADS * d * d_h,
        S_kv * HEADS * d * d_h,
        S_kv * HEADS * d * EXPERTS,
        S_kv * HEADS * k_S * d * d_h,
        S_kv * HEADS * k_S * d_h,
        attention,
        attention,
        S_q * HEADS * d * EXPERTS,
        S_q * HEADS * k_D * d_h * d,
        S_q * HEADS * k_D * d,
    )


def paper_macs(T: int, C: int, k: int, d: int, d_h: int) -> int:
    """H_A (2 T d_h d + 2 T k d_h (d + 1) + 2 C T^2 d_h + 2 C T d_h d): no selector cost."""
    return HEADS * (2 * T * d_h * d + 2 * T * k * d_h * (d + 1) + 2 * C * T**2 * d_h + 2 * C * T * d_h * d)


def cache_checks(fixture: SwitchheadFixture, computed: tuple[Head, ...]) -> Iterator[Check]:
    """Stored rows are head keys and mixed values; the source router defines them, the destination side does not."""
    at = parameters(fixture)
    appended = (1, len(computed), 1, len(computed[0].V_mix[0]))
    yield equal("appended K and mixed V", (appended, appended), ((1, 2, 1, 2), (1, 2, 1, 2)), source=CACHE)

    def stored(point: Point) -> tuple[Matrix, ...]:
        return tuple(matrix for head in heads(fixture, point) for matrix in (head.K, head.V_mix))

    present = stored(at)
    for name in ("W_Q0", "W_O00", "R_D0"):
        changed = {**at, name: tuple(scaled(2.0, row) for row in at[name])}
        yield equal(f"another {name} keeps the cache", stored(changed) == present, True, source=CACHE)
    for name in ("W_K0", "W_V00", "R_S0"):
        changed = {**at, name: tuple(scaled(2.0, row) for row in at[name])}
        moved = max(distance(a, b) for a, b in zip(stored(changed), present, strict=True))
        yield above(f"another {name} changes the cache", moved, 1e-2, source=CACHE)


def require_shapes(fixture: SwitchheadFixture) -> None:
    """The dimensions of C 0x03N."""
    for name, value in parameters(fixture).items():
        require_shape(name, value, (2, EXPERTS if name.startswith("R") else 2))
    require_shape("X_q", fixture.X_q, (2, 2))
    require_shape("X_kv", fixture.X_kv, (3, 2))
    require_shape("G", fixture.G, (2, 2))
    require_length("visible", fixture.visible, 2)
    require_length("tied_row", fixture.tied_row, EXPERTS)


def evaluate(fixture: SwitchheadFixture) -> Iterator[Check]:
    """Every check of C 0x03, in the order of its subsections."""
    require_shapes(fixture)
    computed = heads(fixture, parameters(fixture))
    yield from union_checks(fixture)
    yield from forward_checks(fixture, computed)
    yield from backward_checks(fixture, computed)
    yield from ledger_checks(fixture)
    yield from cache_checks(fixture, computed)


# Our tensors: ids and results from an independent automatic differentiation in float64.
SOURCE_IDS = (((0, 2), (2, 1), (2, 1)), ((0, 1), (1, 2), (1, 0)))
DESTINATION_IDS = (((2, 1), (0, 1)), ((2, 1), (0, 1)))
MIXED: tuple[Matrix, Matrix] = (
    ((0.024373816113, 0.041967697548), (0.683137505231, -0.294975464507), (0.545581608120, -0.747172971494)),
    ((-0.020405157671, 0.040664988120), (0.340622145065, -0.718572123234), (-0.023920604267, -1.422936264556)),
)
OUTPUT: Matrix = ((0.063542928794, 0.461126674919), (-0.246927082402, 0.128531469844))
LOSS = -0.585062180856
GRAD_R_S0: Matrix = (
    (-0.009272146772, -0.001449012650, 0.050120747968),
    (0.006052651365, -0.021186600376, 0.009753444636),
)

ORACLE = Oracle(
    name="switchhead",
    document="C",
    sections=("0x03B", "0x03C", "0x03E", "0x03F", "0x03G", "0x03H", "0x03I", "0x03N"),
    module=__name__,
    fixture=SwitchheadFixture,
    evaluate=evaluate,
    proves=(
        "source value experts and destination output experts around a fixed number of maps",
        "noncompetitive sigmoid gates: six banks against central differences",
        "map, parameter and MAC ledgers, and what a stored row depends on",
    ),
    does_not_prove=(
        "the perplexity sweep, the training times and the memory figures the paper reports",
        "differentiation through a top-k order, or a fused or quantized kernel",
    ),
    own=("X_q", "X_kv", "W_Q", "W_K", "W_V", "W_O", "R_S", "R_D", "visible", "G", "tied_row"),
    document_mutations=22,
)
