"""Mixture of attention heads: one route picks coupled query and output experts, keys and values are shared (C 0x02).

Shapes: X_q, G, Y [S_q, d]; X_kv [S_kv, d]; W_g [d, E]; W_Q_i [d, d_h]; W_O_i [d_h, d]; W_K, W_V [d, d_h]; p [E].
The batch has one item. Experts are counted from 0.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from oracles.checks import Check, above, close, equal, gradient
from oracles.conditional.attention import attend, attend_backward, row_times, scaled, stable_top, weighted_sum
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
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

FORWARD, STOPPED, BACKWARD = "C 0x02A", "C 0x02C", "C 0x02D"
PARAMETERS, COMPUTE, SHARED, CLOSURE = "C 0x02E", "C 0x02F", "C 0x02G", "C 0x02K"

Denominator = Literal["stopped", "differentiated"]


class RouterRow(Fixture):
    """The router row of C 0x02C: p = softmax(l), k selected, c_i = <g_y, E_i>."""

    p: FixtureVector
    k: int
    c: FixtureVector
    denominator: Denominator


class MoaFixture(Fixture):
    """The router row as printed, and tensors of ours in the dimensions of C 0x02K."""

    router_row: RouterRow
    k: int
    X_q: FixtureMatrix
    X_kv: FixtureMatrix
    W_g: FixtureMatrix
    W_Q: tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]
    W_O: tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]
    W_K: FixtureMatrix
    W_V: FixtureMatrix
    G: FixtureMatrix
    visible: tuple[tuple[bool, ...], ...]
    tied_row: FixtureVector
    tie_break: Literal["lower_id_first", "higher_id_first"]
    output_ids: Literal["coupled", "reversed_slots"]


class Slot(NamedTuple):
    """One selected expert of one destination: ids of the query and output expert, a, u and e."""

    query_id: int
    output_id: int
    w: float
    q: Vector
    a: Vector
    u: Vector
    e: Vector


class Row(NamedTuple):
    """One destination row: full probabilities, ordered selected ids, their mass Z and the slots."""

    p: Vector
    ids: tuple[int, ...]
    Z: float
    slots: tuple[Slot, ...]


def parameters(fixture: MoaFixture) -> dict[str, Matrix]:
    """Every tensor the output depends on, by name."""
    experts = {f"W_Q{i}": W for i, W in enumerate(fixture.W_Q)} | {f"W_O{i}": W for i, W in enumerate(fixture.W_O)}
    shared = {"X_q": fixture.X_q, "X_kv": fixture.X_kv, "W_g": fixture.W_g, "W_K": fixture.W_K, "W_V": fixture.W_V}
    return {**shared, **experts}


def select(fixture: MoaFixture, scores: Vector, k: int) -> tuple[int, ...]:
    """StableTopK under the fixture's tie policy."""
    return stable_top(scores, k, later_first=fixture.tie_break == "higher_id_first")


def forward(fixture: MoaFixture, point: Point, held: Vector | None = None) -> tuple[Row, ...]:
    """Every destination row; `held` replaces the selected mass Z by a constant, row by row."""
    K, V = matmul(point["X_kv"], point["W_K"]), matmul(point["X_kv"], point["W_V"])
    rows: list[Row] = []
    for t, x in enumerate(point["X_q"]):
        p = softmax(row_times(x, point["W_g"]))
        ids = select(fixture, p, fixture.k)
        Z = math.fsum(p[i] for i in ids) if held is None else held[t]
        readouts = ids if fixture.output_ids == "coupled" else ids[::-1]
        slots: list[Slot] = []
        for i, j in zip(ids, readouts, strict=True):
            q = row_times(x, point[f"W_Q{i}"])
            a, u = attend(q, K, V, fixture.visible[t])
            slots.append(Slot(i, j, p[i] / Z, q, a, u, row_times(u, point[f"W_O{j}"])))
        rows.append(Row(p, ids, Z, tuple(slots)))
    return tuple(rows)


def output(rows: tuple[Row, ...]) -> Matrix:
    """Y = sum over slots of w E."""
    return tuple(weighted_sum(tuple(s.w for s in row.slots), tuple(s.e for s in row.slots)) for row in rows)


def logit_gradient(p: Vector, ids: tuple[int, ...], c: Vector, denominator: Denominator) -> Vector:
    """dL/dl for contributions c_i of the selected experts, in the order of `ids`.

    Stopped: u_i = c_i / Z. Differentiated: u_j = c_j / Z - sum_i c_i p_i / Z^2 for selected j.
    """
    Z = math.fsum(p[i] for i in ids)
    mean = math.fsum(x * p[i] for x, i in zip(c, ids, strict=True)) / Z if denominator == "differentiated" else 0.0
    u = {i: (x - mean) / Z for x, i in zip(c, ids, strict=True)}
    return softmax_backward(p, tuple(u.get(i, 0.0) for i in range(len(p))))


def backward(fixture: MoaFixture, rows: tuple[Row, ...], denominator: Denominator) -> dict[str, Matrix]:
    """The gradients of L = <G, Y>: experts, shared projections, router, and both input paths of X_q."""
    at = parameters(fixture)
    K, V = matmul(at["X_kv"], at["W_K"]), matmul(at["X_kv"], at["W_V"])
    grads = {name: zeros(*shape(value)) for name, value in at.items()}
    grad_K, grad_V = zeros(*shape(K)), zeros(*shape(V))

    def accumulate(name: str, value: Matrix) -> None:
        grads[name] = add(grads[name], value)

    for t, (x, g, row) in enumerate(zip(fixture.X_q, fixture.G, rows, strict=True)):
        grad_l = logit_gradient(row.p, row.ids, tuple(dot(g, s.e) for s in row.slots), denominator)
        accumulate("W_g", outer(x, grad_l))
        grad_x = row_times(grad_l, transpose(at["W_g"]))
        for s in row.slots:
            grad_e = scaled(s.w, g)
            accumulate(f"W_O{s.output_id}", outer(s.u, grad_e))
            grad_u = row_times(grad_e, transpose(at[f"W_O{s.output_id}"]))
            grad_q, slot_K, slot_V = attend_backward(s.q, K, V, s.a, grad_u)
            grad_K, grad_V = add(grad_K, slot_K), add(grad_V, slot_V)
            accumulate(f"W_Q{s.query_id}", outer(x, grad_q))
            grad_x = add((grad_x,), (row_times(grad_q, transpose(at[f"W_Q{s.query_id}"])),))[0]
        accumulate("X_q", tuple(grad_x if i == t else (0.0,) * len(x) for i in range(len(rows))))
    accumulate("W_K", matmul(transpose(at["X_kv"]), grad_K))
    accumulate("W_V", matmul(transpose(at["X_kv"]), grad_V))
    accumulate("X_kv", add(matmul(grad_K, transpose(at["W_K"])), matmul(grad_V, transpose(at["W_V"]))))
    return grads


def router_checks(fixture: MoaFixture) -> Iterator[Check]:
    """Equal forward weights, two backward rules, and which differences recover which rule."""
    row = fixture.router_row
    if min(row.p) <= 0.0:
        raise FixtureRefusedError("router_row.p", min(row.p), "positive probabilities")
    ids = select(fixture, row.p, row.k)
    require_length("router_row.c", row.c, row.k)
    Z = math.fsum(row.p[i] for i in ids)
    yield equal("G", ids, (0, 1), source=STOPPED)
    yield close("Z", Z, 0.80, source=STOPPED, digits=2, tolerance=1e-15)
    yield close("w", tuple(row.p[i] / Z for i in ids), (0.625, 0.375), source=STOPPED, digits=3, tolerance=1e-15)
    yield close("p", row.p, (0.50, 0.30, 0.20), source=STOPPED, digits=2, tolerance=1e-15)
    yield close("c", row.c, (2.0, -1.0), source=STOPPED, digits=1, tolerance=1e-15)
    declared = logit_gradient(row.p, ids, row.c, row.denominator)
    ordinary = logit_gradient(row.p, ids, row.c, "differentiated")
    yield close("stopped-denominator dL/dlogit", declared, STOPPED_LOGITS, source=STOPPED, digits=4, tolerance=1e-15)
    yield close("ordinary dL/dlogit", ordinary, ORDINARY_LOGITS, source=STOPPED, digits=6, tolerance=1e-15)

    def loss(point: Point, mass: float | None) -> float:
        p = softmax(point["l"][0])
        divisor = math.fsum(p[i] for i in ids) if mass is None else mass
        return math.fsum(c * p[i] / divisor for c, i in zip(row.c, ids, strict=True))

    at = {"l": (tuple(math.log(x) for x in row.p),)}
    free = compare(lambda p: loss(p, None), at, {"l": (ordinary,)})
    held = compare(lambda p: loss(p, Z), at, {"l": (declared,)})
    yield gradient("differences of p/Z give the ordinary rule", free, 1e-9, source=STOPPED)
    yield gradient("differences with Z held give the stopped rule", held, 1e-9, source=STOPPED)


def forward_checks(fixture: MoaFixture, rows: tuple[Row, ...]) -> Iterator[Check]:
    """Shapes, coupled ids, stable ties, the output, and the shared source state."""
    K = matmul(fixture.X_kv, fixture.W_K)
    maps = tuple(tuple(s.a for s in row.slots) for row in rows)
    yield equal("selected ids", tuple(row.ids for row in rows), IDS, source=FORWARD)
    pairs = tuple(tuple((s.query_id, s.output_id) for s in row.slots) for row in rows)
    coupled = tuple(tuple((i, i) for i in row) for row in IDS)
    yield equal("one id indexes query and output expert", pairs, coupled, source=FORWARD)
    yield equal("ties: lower id first", select(fixture, fixture.tied_row, 2), (1, 0), source=CLOSURE)
    yield close("tied row", fixture.tied_row, (0.25, 0.5, 0.25), source=CLOSURE, digits=3)
    yield equal("A shape", (1, len(maps), len(maps[0]), len(maps[0][0])), (1, 2, 2, 3), source=FORWARD)
    yield equal("map elements", sum(len(a) for row in maps for a in row), 12, source=FORWARD)
    yield equal("K shape: no expert axis", (1, *shape(K)), (1, 3, 2), source=SHARED)
    yield close("Y", output(rows), OUTPUT, source=FORWARD, digits=12)
    yield from shared_checks(fixture, K)


def shared_checks(fixture: MoaFixture, K: Matrix) -> Iterator[Check]:
    """Another route changes the output and leaves the stored source rows alone."""
    other = {**parameters(fixture), "W_g": tuple(row[::-1] for row in fixture.W_g)}
    moved = output(forward(fixture, other))
    yield above("another route changes Y", distance(moved, OUTPUT), 1e-2, source=SHARED)
    yield equal("another route keeps K", matmul(other["X_kv"], other["W_K"]) == K, True, source=SHARED)
    appended = (row_times(fixture.X_q[0], fixture.W_K), row_times(fixture.X_q[0], fixture.W_V))
    yield equal("appended K and V", tuple((1, 1, len(row)) for row in appended), ((1, 1, 2), (1, 1, 2)), source=SHARED)


def backward_checks(fixture: MoaFixture, rows: tuple[Row, ...]) -> Iterator[Check]:
    """Every tensor against central differences, with Z held and with Z free."""
    at, held = parameters(fixture), tuple(row.Z for row in rows)
    yield close("loss <G, Y>", inner(fixture.G, output(rows)), LOSS, source=BACKWARD, digits=12)
    stopped = backward(fixture, rows, fixture.router_row.denominator)
    yield close("grad W_g, stopped", stopped["W_g"], GRAD_W_G, source=BACKWARD, digits=12)
    frozen = compare(lambda p: inner(fixture.G, output(forward(fixture, p, held))), at, stopped)
    yield gradient("stopped backward with Z held", frozen, 1e-9, source=BACKWARD)
    ordinary = backward(fixture, rows, "differentiated")
    free = compare(lambda p: inner(fixture.G, output(forward(fixture, p))), at, ordinary)
    yield gradient("ordinary backward with Z free", free, 1e-9, source=BACKWARD)
    difference = distance(stopped["W_g"], ordinary["W_g"])
    yield above("the two rules train another router", difference, 1e-2, source=STOPPED)
    smooth = max(distance(stopped[name], ordinary[name]) for name in at if name not in ("W_g", "X_q"))
    yield equal("the rules differ in the router path alone", smooth, 0.0, source=STOPPED)


def ledger_checks(fixture: MoaFixture) -> Iterator[Check]:
    """Resident, checkpoint and active parameters; the two MAC conventions side by side."""
    (S_q, d), S_kv, d_h = shape(fixture.X_q), len(fixture.X_kv), shape(fixture.W_K)[1]
    E, k = len(fixture.W_Q), fixture.k
    yield equal("S_q, S_kv, d, d_h, E, k", (S_q, S_kv, d, d_h, E, k), (2, 3, 2, 2, 3, 2), source=CLOSURE)
    paper = (2 * E + 2) * d * d_h
    active = 2 * k * d * d_h + 2 * d * d_h + d * E
    yield equal("parameters, paper", paper, 32, source=PARAMETERS)
    yield equal("parameters, checkpoint", paper + d * E, 38, source=PARAMETERS)
    yield equal("parameters, active a token", active, 30, source=PARAMETERS)
    yield equal("MACs by operation", macs(S_q, S_kv, d, d_h, E, k), (12, 24, 32, 24, 24), source=COMPUTE)
    yield equal("MACs, named", sum(macs(S_q, S_kv, d, d_h, E, k)), 116, source=COMPUTE)
    T = S_q
    printed = k * T**2 * d_h + 2 * (k + 1) * T * d * d_h
    yield equal("symmetric T = 2, paper convention", printed, 64, source=COMPUTE)
    yield equal("symmetric T = 2, named convention", sum(macs(T, T, d, d_h, E, k)), 92, source=COMPUTE)


def macs(S_q: int, S_kv: int, d: int, d_h: int, E: int, k: int) -> tuple[int, int, int, int, int]:
    """Router, K and V, Q and O, Q K^T, A V for one batch item."""
    attention = k * S_q * S_kv * d_h
    return S_q * d * E, 2 * S_kv * d * d_h, 2 * S_q * k * d * d_h, attention, attention


def require_shapes(fixture: MoaFixture) -> None:
    """The dimensions of C 0x02K: S_q 2, S_kv 3, d = d_h = 2, E 3."""
    for name, value in parameters(fixture).items():
        rows = {"X_q": 2, "X_kv": 3}.get(name, 2)
        require_shape(name, value, (rows, 3 if name == "W_g" else 2))
    require_shape("G", fixture.G, (2, 2))
    require_length("visible", fixture.visible, 2)
    require_length("tied_row", fixture.tied_row, 3)
    require_length("router_row.p", fixture.router_row.p, 3)


def evaluate(fixture: MoaFixture) -> Iterator[Check]:
    """Every check of C 0x02, in the order of its subsections."""
    require_shapes(fixture)
    rows = forward(fixture, parameters(fixture))
    yield from forward_checks(fixture, rows)
    yield from router_checks(fixture)
    yield from backward_checks(fixture, rows)
    yield from ledger_checks(fixture)


STOPPED_LOGITS: Vector = (0.8125, -0.6375, -0.1750)
ORDINARY_LOGITS: Vector = (0.703125, -0.703125, 0.0)
# Our tensors: ids by hand from X_q W_g, results from an independent automatic differentiation in float64.
IDS = ((0, 1), (2, 0))
OUTPUT: Matrix = ((-0.119361115706, 0.207110188940), (0.213786462309, -0.353012920370))
LOSS = -0.522554633412
GRAD_W_G: Matrix = (
    (0.053492902566, -0.089855061001, 0.036362158436),
    (-0.040399399820, 0.069360507869, -0.028961108049),
)

ORACLE = Oracle(
    name="moa",
    document="C",
    sections=("0x02A", "0x02C", "0x02D", "0x02E", "0x02F", "0x02G", "0x02K"),
    module=__name__,
    fixture=MoaFixture,
    evaluate=evaluate,
    proves=(
        "one stable route indexes query and output experts; keys and values carry no expert axis",
        "the stopped-denominator router gradient and the ordinary one, each against its own differences",
        "expert, shared-projection and input gradients; resident, active and both MAC ledgers",
    ),
    does_not_prove=(
        "the balance and z objectives of C 0x02I, noisy gating, or the divergence of the pinned public code",
        "a grouped kernel, its memory traffic or its speed",
    ),
    own=("X_q", "X_kv", "W_g", "W_Q", "W_O", "W_K", "W_V", "G", "visible", "tied_row"),
)
