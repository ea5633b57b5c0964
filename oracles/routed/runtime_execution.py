"""From logical routes to packed work: occurrences, segments, scatter, shared-A reuse and its backward (R 0x08).

Shapes: X [T, d_in], A_j [r, d_in], B_j [d_out, r], G = dL/dY [T, d_out]. One occurrence is one (token, slot) pair.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    apply,
    distance,
    dot,
    inner,
    matmul,
    outer,
    require_length,
    require_shape,
    scale,
    subtract,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.routed.identities import identify
from oracles.routed.runtime_execution_launch import Branch, Snapshot, launch_checks, reuse_checks
from schemas.canonical import JsonObject
from schemas.digests import Digest

ABI, FORWARD, SHARED, BACKWARD = "R 0x08A", "R 0x08B", "R 0x08C", "R 0x08D"
WORKSPACE, REGIMES, SWITCH, WITNESS = "R 0x08E", "R 0x08F", "R 0x08I", "R 0x08K"
T, D_IN, D_OUT, RANK, J = 4, 3, 2, 2, 3

Count = Annotated[int, Field(ge=1)]


class Selected(Fixture):
    """One selected expert of a token and its gate."""

    expert: Annotated[int, Field(ge=0, lt=J)]
    gate: float


class Bytes(Fixture):
    """Widths of the workspace: indices, gates, Z and D, and copied factors."""

    index: Count
    gate: Count
    latent: Count
    output: Count
    factor: Count


class Regimes(Fixture):
    """Rows of a prefill and of a one-token decode, and the selected degree."""

    prefill_rows: Count
    decode_rows: Count
    k: Count


Row = tuple[Selected, ...]
Triple = tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]


class RuntimeFixture(Fixture):
    """The teaching route as printed; factors and inputs are ours and meet the printed shared-A output."""

    X: FixtureMatrix
    routes: tuple[Row, Row, Row, Row]
    A: FixtureMatrix
    B: Triple
    s: FixtureVector
    A_independent: Triple
    G: FixtureMatrix
    scatter: Literal["token_row", "packed_row_as_token"]
    bytes: Bytes
    regimes: Regimes
    branches: tuple[Branch, Branch, Branch]
    launch: Snapshot
    lease: Snapshot


class Occurrence(NamedTuple):
    """(token row, route slot) -> (expert, gate)."""

    token: int
    slot: int
    expert: int
    gate: float


class Plan(NamedTuple):
    """Row-major occurrences, their stable order by expert, and the start of every expert's segment."""

    occurrences: tuple[Occurrence, ...]
    permutation: tuple[int, ...]
    offsets: tuple[int, ...]


def build_plan(routes: Sequence[Row]) -> Plan:
    """Flatten the selected pairs and group them by (expert, token, slot)."""
    rows = tuple(Occurrence(t, s, e.expert, e.gate) for t, row in enumerate(routes) for s, e in enumerate(row))
    order = sorted(range(len(rows)), key=lambda q: (rows[q].expert, rows[q].token, rows[q].slot))
    counts = [sum(1 for row in rows if row.expert < j) for j in range(J + 1)]
    return Plan(rows, tuple(order), tuple(counts))


def segments(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """The occurrence ids of every expert, in packed order."""
    return tuple(plan.permutation[a:b] for a, b in pairwise(plan.offsets))


def segment_products(fixture: RuntimeFixture, ids: Sequence[int], plan: Plan, A: Matrix, j: int) -> Matrix:
    """One grouped pass of expert j: gather rows, shrink, expand."""
    gathered = tuple(fixture.X[plan.occurrences[q].token] for q in ids)
    return matmul(matmul(gathered, transpose(A)), transpose(fixture.B[j]))


def packed_forward(
    fixture: RuntimeFixture, plan: Plan, As: Sequence[Matrix], groups: Sequence[Sequence[int]]
) -> Matrix:
    """Grouped execution: the coefficient is applied on the way out, the result scattered to its token."""
    result, packed = zeros(T, D_OUT), 0
    for j, ids in enumerate(groups):
        outputs = segment_products(fixture, ids, plan, As[j], j) if ids else ()
        for q, d in zip(ids, outputs, strict=True):
            occurrence = plan.occurrences[q]
            token = occurrence.token if fixture.scatter == "token_row" else packed % T
            result = _put(result, token, tuple(occurrence.gate * fixture.s[j] * x for x in d))
            packed += 1
    return result


def dense_forward(fixture: RuntimeFixture, point: Point) -> Matrix:
    """The row-major reference: y_t = sum_q g_q s_j B_j A_j x_t, straight from the routes."""
    rows = []
    for t, (row, x) in enumerate(zip(fixture.routes, point["X"], strict=True)):
        coefficients = tuple(g * fixture.s[e.expert] for g, e in zip(point["gates"][t], row, strict=True))
        outputs = tuple(apply(point[f"B{e.expert}"], _latent(point, e.expert, x)) for e in row)
        rows.append(tuple(dot(coefficients, column) for column in transpose(outputs)))
    return tuple(rows)


def _latent(point: Point, expert: int, x: Vector) -> Vector:
    return apply(point["A"] if "A" in point else point[f"A{expert}"], x)


def start(fixture: RuntimeFixture, *, shared: bool) -> dict[str, Matrix]:
    """Every selected coordinate: X, A or A_j, B_j and the gates."""
    A = {"A": fixture.A} if shared else {f"A{j}": A for j, A in enumerate(fixture.A_independent)}
    B = {f"B{j}": B for j, B in enumerate(fixture.B)}
    gates = tuple(tuple(e.gate for e in row) for row in fixture.routes)
    return {"X": fixture.X, **A, **B, "gates": gates}


def packed_backward(fixture: RuntimeFixture, plan: Plan, point: Point) -> dict[str, Matrix]:
    """Segment reductions on the fixed support; a shared A sees one dz_t summed over the branches of its token."""
    found = {name: zeros(len(value), len(value[0])) for name, value in point.items()}
    dz = zeros(T, RANK)
    for t, slot, j, gate in plan.occurrences:
        x, g, B = point["X"][t], fixture.G[t], point[f"B{j}"]
        z = _latent(point, j, x)
        u = tuple(gate * fixture.s[j] * y for y in g)
        found[f"B{j}"] = add(found[f"B{j}"], outer(u, z))
        back = apply(transpose(B), u)
        credit = fixture.s[j] * dot(g, apply(B, z))
        found["gates"] = _put(found["gates"], t, tuple(credit * (i == slot) for i in range(2)))
        if "A" in point:
            dz = _put(dz, t, back)
        else:
            found[f"A{j}"] = add(found[f"A{j}"], outer(back, x))
            found["X"] = _put(found["X"], t, apply(transpose(point[f"A{j}"]), back))
    if "A" in point:
        found |= {"A": matmul(transpose(dz), point["X"]), "X": matmul(dz, point["A"])}
    return found


def _put(a: Matrix, row: int, values: Vector) -> Matrix:
    return tuple(add((r,), (values,))[0] if i == row else r for i, r in enumerate(a))


def flops(rows: int, occurrences: int) -> tuple[int, int]:
    """(independent, shared A): 2 R r (d_in + d_out) and 2 T r d_in + 2 R r d_out."""
    return 2 * occurrences * RANK * (D_IN + D_OUT), 2 * rows * RANK * D_IN + 2 * occurrences * RANK * D_OUT


def factor_copies(occurrences: int, width: int, schedule: str) -> int:
    """Bytes of selected factor pairs copied: R pairs for an indexed batched product, none under direct indexing."""
    return occurrences * RANK * (D_IN + D_OUT) * width if schedule == "indexed_bmm" else 0


def route_digest(routes: Sequence[Row]) -> Digest:
    """Identity of the resolved route: which experts, which gates, in which slot."""
    return identify("oracle_route", {"routes": [[e.model_dump() for e in row] for row in routes]})


def execution_signature(snapshot: Snapshot, routes: Sequence[Row]) -> Digest:
    """What K/V belongs to: base, router, adapter versions and the resolved route."""
    record: JsonObject = {
        "base": snapshot.base,
        "router": snapshot.router,
        "versions": [adapter.version for adapter in snapshot.adapters],
        "route": route_digest(routes),
    }
    return identify("oracle_kv", record)


def plan_checks(fixture: RuntimeFixture) -> Iterator[Check]:
    """Occurrences, stable order, segments, and how many there are under other policies."""
    plan = build_plan(fixture.routes)
    printed = tuple(tuple((e.expert, e.gate) for e in row) for row in fixture.routes)
    yield equal("teaching route", printed, ROUTES, source=ABI)
    R = len(plan.occurrences)
    yield equal("route occurrences", R, 8, source=ABI)
    yield equal("permutation", plan.permutation, (0, 3, 6, 2, 5, 7, 1, 4), source=ABI)
    yield equal("segment offsets", plan.offsets, (0, 3, 6, 8), source=ABI)
    rows = tuple(tuple(plan.occurrences[q].token for q in ids) for ids in segments(plan))
    yield equal("segment rows", rows, ((0, 1, 3), (1, 2, 3), (0, 2)), source=ABI)
    back = tuple(sorted((plan.occurrences[q].token, plan.occurrences[q].slot) for q in plan.permutation))
    yield equal("the plan inverts", back, tuple((t, s) for t in range(T) for s in range(2)), source=ABI)
    overflow = build_plan((*fixture.routes[:3], fixture.routes[3][:1]))
    dense = build_plan(tuple(tuple(Selected(expert=j, gate=1.0 / J) for j in range(J)) for _ in range(T)))
    counts = (len(overflow.occurrences), len(dense.occurrences))
    yield equal("occurrences with an overflow and dense", counts, (7, 12), source=ABI)


def forward_checks(fixture: RuntimeFixture) -> Iterator[Check]:
    """Packed and dense execution agree; segment order does not matter, scattering by token id is wrong."""
    plan = build_plan(fixture.routes)
    groups = segments(plan)
    As = (fixture.A,) * J
    output = packed_forward(fixture, plan, As, groups)
    yield close("shared-A output", output, OUTPUT, source="R 0x08C", digits=4)
    reference = dense_forward(fixture, start(fixture, shared=True))
    yield below("packed against dense reference", distance(output, reference), 1e-14, source=FORWARD)
    reversed_groups = tuple(ids[::-1] for ids in groups)
    other = packed_forward(fixture, plan, As, reversed_groups)
    yield below("order inside a segment", distance(other, output), 1e-14, source=WITNESS)
    by_id = fixture.model_copy(update={"scatter": "packed_row_as_token"})
    wrong = packed_forward(by_id, plan, As, groups)
    yield above("scattering by packed row is wrong", distance(wrong, output), 1.0, source=ABI)
    independent = packed_forward(fixture, plan, fixture.A_independent, groups)
    yield close("independent output", independent, INDEPENDENT, source=FORWARD, digits=9)
    reference = dense_forward(fixture, start(fixture, shared=False))
    yield below("independent packed against dense", distance(independent, reference), 1e-14, source=FORWARD)
    first = packed_forward(fixture, plan, (fixture.A_independent[0],) * J, groups)
    yield close("one A for unequal A_j changes", distance(first, independent), 2.15625, source=SHARED, digits=9)


def backward_checks(fixture: RuntimeFixture) -> Iterator[Check]:
    """Shared against cloned gradients, and every selected coordinate against central differences."""
    plan, G = build_plan(fixture.routes), fixture.G
    yield equal("upstream gradient", G, UPSTREAM, source=BACKWARD)
    shared = start(fixture, shared=True)
    found = packed_backward(fixture, plan, shared)
    clones = {name: value for name, value in shared.items() if name != "A"} | {f"A{j}": fixture.A for j in range(J)}
    apart = packed_backward(fixture, plan, clones)
    summed = add(*(apart[f"A{j}"] for j in range(J)))
    yield below("shared dA is the sum of clone dA_j", distance(found["A"], summed), 1e-14, source=WITNESS)
    errors = tuple(distance(found[name], apart[name]) for name in ("X", "B0", "B1", "B2", "gates"))
    yield below("shared dX, dB and dgate match the clones", max(errors), 1e-14, source=WITNESS)
    yield above("one branch's dA is not the shared one", distance(found["A"], apart["A0"]), 0.1, source=BACKWARD)
    for name, point in (("shared A", shared), ("independent A", start(fixture, shared=False))):
        difference = compare(
            lambda at: inner(G, dense_forward(fixture, at)), point, packed_backward(fixture, plan, point)
        )
        yield gradient(f"{name} packed gradients", difference, 1e-8, source=BACKWARD)


def ledger_checks(fixture: RuntimeFixture) -> Iterator[Check]:
    """FLOPs, bytes, liveness policies and the two regimes."""
    R, widths = len(build_plan(fixture.routes).occurrences), fixture.bytes
    independent, shared = flops(T, R)
    yield equal(
        "FLOPs independent, shared, saved", (independent, shared, independent - shared), (160, 112, 48), source=SHARED
    )
    yield equal("saved by formula 2 (R - T) r d_in", 2 * (R - T) * RANK * D_IN, 48, source=SHARED)
    latent, output = R * RANK * widths.latent, R * D_OUT * widths.output
    yield equal("metadata bytes", R * (4 * widths.index + widths.gate), 192, source=WORKSPACE)
    yield equal("bytes of Z_R and D_R", (latent, output), (128, 128), source=WORKSPACE)
    copies = tuple(factor_copies(R, widths.factor, schedule) for schedule in ("indexed_bmm", "direct_index"))
    yield equal("selected-factor copies, indexed and direct", copies, (160, 0), source=WORKSPACE)
    widths_now = (widths.index, widths.gate, widths.factor)
    yield equal("widths of index, gate, copied factor", widths_now, (4, 8, 2), source=WORKSPACE)
    saved = (latent, T * RANK * widths.latent)
    yield equal("saved Z_R and Z_T bytes", saved, (128, 64), source=WORKSPACE)
    recomputed = (2 * R * RANK * D_IN, 2 * T * RANK * D_IN)
    yield equal("recompute FLOPs of Z_R and Z_T", recomputed, (96, 48), source=WORKSPACE)
    k = fixture.regimes.k
    for name, rows, printed in (
        ("prefill", fixture.regimes.prefill_rows, (128, 256)),
        ("decode", fixture.regimes.decode_rows, (16, 32)),
    ):
        yield equal(f"{name} rows and occurrences", (rows, rows * k), printed, source=REGIMES)


def switch_checks(fixture: RuntimeFixture) -> Iterator[Check]:
    """Carrying fused weights from token to token is exact, and one fused weight serves one route only."""
    fused = tuple(_update(fixture, row) for row in fixture.routes)
    carried = fused[0]
    for previous, current in pairwise(fused):
        carried = add(subtract(carried, previous), current)
    yield below("fused weights carried over tokens", distance(carried, fused[-1]), 1e-14, source=SWITCH)
    yield above("one fused weight for two routes", distance(fused[0], fused[1]), 0.5, source=SWITCH)


def _update(fixture: RuntimeFixture, row: Row) -> Matrix:
    return add(*(scale(e.gate * fixture.s[e.expert], matmul(fixture.B[e.expert], fixture.A)) for e in row))


def signature_checks(fixture: RuntimeFixture) -> Iterator[Check]:
    """K/V belongs to one resolved route and one set of versions."""
    held = execution_signature(fixture.lease, fixture.routes)
    same = execution_signature(fixture.launch, fixture.routes) == held
    yield equal("launch and lease have one K/V signature", same, True, source="R 0x08G")
    rerouted = (fixture.routes[0][::-1], *fixture.routes[1:])
    changed = execution_signature(fixture.lease, rerouted) != held
    yield equal("a route change is another K/V signature", changed, True, source="R 0x08G")


def evaluate(fixture: RuntimeFixture) -> Iterator[Check]:
    """Every check of R 0x08."""
    require_shape("X", fixture.X, (T, D_IN))
    require_shape("G", fixture.G, (T, D_OUT))
    for A in (fixture.A, *fixture.A_independent):
        require_shape("A", A, (RANK, D_IN))
    for B in fixture.B:
        require_shape("B", B, (D_OUT, RANK))
    require_length("s", fixture.s, J)
    for row in fixture.routes:
        require_length("selected experts a row", row, 2)
        if not math.isclose(math.fsum(e.gate for e in row), 1.0):
            raise FixtureRefusedError("routes", [e.gate for e in row], "gates that sum to one")
    yield from plan_checks(fixture)
    yield from forward_checks(fixture)
    yield from ledger_checks(fixture)
    yield from reuse_checks(fixture.branches)
    yield from launch_checks(fixture.launch, fixture.lease)
    yield from signature_checks(fixture)
    yield from switch_checks(fixture)
    yield from backward_checks(fixture)


ROUTES = (
    ((0, 0.75), (2, 0.25)),
    ((1, 0.6), (0, 0.4)),
    ((2, 0.5), (1, 0.5)),
    ((0, 0.8), (1, 0.2)),
)
OUTPUT: Matrix = ((-0.1875, 0.0), (-2.6, 2.1), (-0.375, 2.25), (-2.4, 1.5))
INDEPENDENT: Matrix = ((-0.64453125, 0.1875), (-3.35, 1.95), (-1.828125, 0.09375), (-2.9, 2.6))
UPSTREAM: Matrix = ((0.5, -0.25), (0.75, 0.5), (-0.5, 0.25), (0.25, -0.75))

ORACLE = Oracle(
    name="runtime_execution",
    document="R",
    sections=("0x08A", "0x08B", "0x08C", "0x08D", "0x08E", "0x08F", "0x08G", "0x08H", "0x08I", "0x08K"),
    module=__name__,
    fixture=RuntimeFixture,
    evaluate=evaluate,
    proves=(
        "stable pack, segment and scatter equal the row-major reference, forward and backward",
        "when one A may serve several branches, what that saves, and how its gradient is reduced",
        "workspace and liveness ledgers; launches bound to leases, generations and one K/V signature",
    ),
    does_not_prove=(
        "latency, throughput, or any GPU kernel",
        "a derivative across a change of support, or the behaviour of a production scheduler",
    ),
    own=("X", "A", "B", "s", "A_independent", "G", "branches", "launch", "lease"),
)
