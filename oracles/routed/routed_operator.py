"""The common routed operator and its gradients: what a router can learn, and what starves it (R 0x01, 0x02).

One layer Y = X W^T + sum_j Diag(G[:, j]) E_j(X) with E_j = s_j X A_j^T B_j^T, Z = X R^T + 1 b^T and G = Route(Z).
Shapes: X [T, d_in], W [d_out, d_in], R [J, d_in], b [J], A_j [r, d_in], B_j [d_out, r].
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare, coordinates, moved
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    matmul,
    max_abs,
    require_length,
    require_shape,
    scale,
    scale_rows,
    shape,
    softmax,
    squared_frobenius,
    subtract,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.routed.mixture import (
    Expert,
    ExpertGradient,
    credits,
    expert_backward,
    expert_output,
    mix,
    router_backward,
    selected_softmax,
    top_k,
)

RULE, TRACE = "R 0x01B", "R 0x01D"
CREDIT, GRADIENTS, PIECEWISE, WITNESS = "R 0x02A", "R 0x02B", "R 0x02C", "R 0x02D"

Policy = Literal["dense_soft", "selected_top2", "selected_top2_postmask", "selected_top1", "selected_topJ"]
POLICIES: tuple[Policy, ...] = (
    "dense_soft",
    "selected_top2",
    "selected_top2_postmask",
    "selected_top1",
    "selected_topJ",
)
STEP = 1e-5


class ExpertFixture(Fixture):
    """One expert's factors and scale."""

    A: FixtureMatrix
    B: FixtureMatrix
    s: float


class OperatorFixture(Fixture):
    """The layer of R 0x02D; the document prints its dimensions and selected ids, the tensors are ours."""

    X: FixtureMatrix
    W: FixtureMatrix
    R: FixtureMatrix
    b: FixtureVector
    experts: tuple[ExpertFixture, ExpertFixture, ExpertFixture]
    target: FixtureMatrix
    k: int
    tie_break: Literal["candidate_order", "reverse_candidate_order"]
    normalization: Literal["selected", "full_with_losers_zeroed"]
    saturated_logits: FixtureVector
    tied_logits: FixtureVector


@dataclass(frozen=True, kw_only=True)
class Forward:
    """Everything the backward pass reads; `support` lists the selected ids a row, in score order."""

    Z: Matrix
    G: Matrix
    E: tuple[Matrix, ...]
    Y: Matrix
    support: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Adjoint of every operand; dX is kept as its three paths."""

    Z: Matrix
    W: Matrix
    R: Matrix
    b: Vector
    experts: tuple[ExpertGradient, ...]
    X_base: Matrix
    X_experts: Matrix
    X_router: Matrix

    @property
    def total(self) -> Matrix:
        """dX = dX_base + dX_experts + dX_router."""
        return add(self.X_base, self.X_experts, self.X_router)


def degree(fixture: OperatorFixture, policy: Policy) -> int:
    """How many experts a row selects."""
    J = len(fixture.experts)
    return {"dense_soft": J, "selected_topJ": J, "selected_top1": 1}.get(policy, fixture.k)


def materialized_rows(fixture: OperatorFixture, policy: Policy) -> int:
    """Expert rows that run: a mask after all J products saves none of them."""
    T, J = len(fixture.X), len(fixture.experts)
    return T * (J if policy in ("dense_soft", "selected_top2_postmask") else degree(fixture, policy))


def gates(fixture: OperatorFixture, z: Vector, support: tuple[int, ...]) -> Vector:
    """Softmax over the selected axis, or the full softmax with the losers zeroed."""
    if fixture.normalization == "selected":
        return selected_softmax(z, support)
    return tuple(g if j in support else 0.0 for j, g in enumerate(softmax(z)))


def start(fixture: OperatorFixture) -> Point:
    """Every scalar coordinate of the layer by name."""
    point: dict[str, Matrix] = {"X": fixture.X, "W": fixture.W, "R": fixture.R, "b": (fixture.b,)}
    for j, expert in enumerate(fixture.experts):
        point |= {f"A{j}": expert.A, f"B{j}": expert.B}
    return point


def members(fixture: OperatorFixture, point: Point) -> tuple[Expert, ...]:
    """The experts at a point."""
    return tuple(Expert(point[f"A{j}"], point[f"B{j}"], e.s) for j, e in enumerate(fixture.experts))


def scores(point: Point) -> Matrix:
    """Z = X R^T + 1 b^T."""
    Z = matmul(point["X"], transpose(point["R"]))
    return add(Z, (point["b"][0],) * len(Z))


def supports(fixture: OperatorFixture, policy: Policy, Z: Matrix) -> tuple[tuple[int, ...], ...]:
    """The selected ids of every row."""
    later_first = fixture.tie_break == "reverse_candidate_order"
    return tuple(top_k(z, degree(fixture, policy), later_first=later_first) for z in Z)


def forward(fixture: OperatorFixture, policy: Policy, point: Point) -> Forward:
    """Route, shrink, expand, mix."""
    Z = scores(point)
    support = supports(fixture, policy, Z)
    G = tuple(gates(fixture, z, s) for z, s in zip(Z, support, strict=True))
    E = tuple(expert_output(point["X"], expert) for expert in members(fixture, point))
    Y = add(matmul(point["X"], transpose(point["W"])), mix(G, E))
    return Forward(Z=Z, G=G, E=E, Y=Y, support=support)


def loss(fixture: OperatorFixture, Y: Matrix) -> float:
    """|Y - target|_F^2 / (2 T d_out)."""
    rows, columns = shape(Y)
    return squared_frobenius(subtract(Y, fixture.target)) / (2.0 * rows * columns)


def loss_at(fixture: OperatorFixture, policy: Policy, point: Point) -> float:
    """The loss of one policy at a point."""
    return loss(fixture, forward(fixture, policy, point).Y)


def upstream(fixture: OperatorFixture, Y: Matrix) -> Matrix:
    """D = dL/dY."""
    rows, columns = shape(Y)
    return scale(1.0 / (rows * columns), subtract(Y, fixture.target))


def backward(fixture: OperatorFixture, point: Point, run: Forward) -> Gradients:
    """The complete local gradient on the fixed support of `run`."""
    X, D = point["X"], upstream(fixture, run.Y)
    dZ = router_backward(run.G, credits(D, run.E))
    parts = tuple(
        expert_backward(X, expert, scale_rows(g, D))
        for expert, g in zip(members(fixture, point), transpose(run.G), strict=True)
    )
    return Gradients(
        Z=dZ,
        W=matmul(transpose(D), X),
        R=matmul(transpose(dZ), X),
        b=tuple(math.fsum(column) for column in transpose(dZ)),
        experts=parts,
        X_base=matmul(D, point["W"]),
        X_experts=add(*(part.X for part in parts)),
        X_router=matmul(dZ, point["R"]),
    )


def named(found: Gradients) -> Point:
    """The gradients under the names of `start`."""
    point: dict[str, Matrix] = {"X": found.total, "W": found.W, "R": found.R, "b": (found.b,)}
    for j, part in enumerate(found.experts):
        point |= {f"A{j}": part.A, f"B{j}": part.B}
    return point


def entropy(g: Vector) -> float:
    """-sum_j g_j log g_j in nats."""
    return -math.fsum(x * math.log(x) for x in g if x > 0.0)


def forward_checks(fixture: OperatorFixture) -> Iterator[Check]:
    """Scores, supports and the ledger of what runs."""
    point = start(fixture)
    runs = {policy: forward(fixture, policy, point) for policy in POLICIES}
    yield equal("router logits", runs["dense_soft"].Z, LOGITS, source=TRACE)
    yield equal("coordinates a policy", len(tuple(coordinates(point))), 135, source=WITNESS)
    yield equal("selected_top2 ids", runs["selected_top2"].support, ((2, 0), (1, 0), (0, 2)), source=WITNESS)
    yield equal("selected_top1 ids", runs["selected_top1"].support, ((2,), (1,), (0,)), source=WITNESS)
    tied = top_k(fixture.tied_logits, 2, later_first=fixture.tie_break == "reverse_candidate_order")
    yield equal("tied logits", fixture.tied_logits, (0.5, 2.0, 2.0), source=PIECEWISE)
    yield equal("ties: logit descending, then candidate order", tied, (1, 2), source=PIECEWISE)
    margins = tuple(sorted(z)[-2] - sorted(z)[-3] for z in runs["dense_soft"].Z)
    yield above("top-2 boundary margin", min(margins), 0.85, source=WITNESS)
    rows = tuple(materialized_rows(fixture, policy) for policy in POLICIES)
    yield equal("materialized expert rows", rows, (9, 6, 9, 3, 9), source=WITNESS)
    credit = credits(upstream(fixture, runs["dense_soft"].Y), runs["dense_soft"].E)
    yield close("dense expert credit", credit, CREDITS, source=CREDIT, digits=9)
    losses = tuple(loss(fixture, runs[policy].Y) for policy in POLICIES)
    yield close("losses", losses, LOSSES, source=WITNESS, digits=9)
    mean_entropies = tuple(math.fsum(map(entropy, runs[p].G)) / len(fixture.X) for p in POLICIES)
    yield close("mean gate entropies", mean_entropies, ENTROPIES, source=WITNESS, digits=6)
    yield from policy_checks(runs)


def policy_checks(runs: dict[Policy, Forward]) -> Iterator[Check]:
    """What two policies share and where they part."""
    dense, selected, postmask = runs["dense_soft"], runs["selected_top2"], runs["selected_top2_postmask"]
    yield equal("postmask has the same output", distance(postmask.Y, selected.Y), 0.0, source=TRACE)
    topJ = distance(runs["selected_topJ"].Y, dense.Y)
    yield equal("topJ equals dense", topJ, 0.0, source=WITNESS)
    full = tuple(
        tuple(g if j in s else 0.0 for j, g in enumerate(softmax(z)))
        for z, s in zip(selected.Z, selected.support, strict=True)
    )
    yield above("selected softmax against zeroed losers", distance(full, selected.G), 0.05, source=TRACE)
    sums = tuple(math.fsum(g) for run in runs.values() for g in run.G)
    yield below("gates of a row sum to one", max(abs(x - 1.0) for x in sums), 1e-15, source=RULE)


def supports_hold(fixture: OperatorFixture, policy: Policy, point: Point) -> bool:
    """Whether every perturbation of the finite differences leaves every selected id in place."""
    expected = supports(fixture, policy, scores(point))
    routed = {name: point[name] for name in ("X", "R", "b")}
    return all(
        supports(fixture, policy, scores({**routed, **moved(routed, name, i, j, step)})) == expected
        for name, i, j in coordinates(routed)
        for step in (STEP, -STEP)
    )


def gradient_checks(fixture: OperatorFixture) -> Iterator[Check]:
    """Every coordinate of three policies against central differences."""
    point = start(fixture)
    checked: tuple[Policy, ...] = ("dense_soft", "selected_top2", "selected_top1")
    held = {policy: supports_hold(fixture, policy, point) for policy in checked}
    yield equal("perturbations keep the support", tuple(held.values()), (True, True, True), source=PIECEWISE)
    for policy, bound in zip(checked, (4.02e-10, 2.25e-10, 1.88e-10), strict=True):
        found = named(backward(fixture, point, forward(fixture, policy, point)))
        difference = compare(partial(loss_at, fixture, policy), point, found, step=STEP)
        yield gradient(f"{policy} gradients", difference, bound, source=WITNESS)


def path_checks(fixture: OperatorFixture) -> Iterator[Check]:
    """Row sums, the constant shift, and the three paths of dX."""
    point = start(fixture)
    run = forward(fixture, "dense_soft", point)
    found = backward(fixture, point, run)
    totals = tuple(abs(math.fsum(row)) for row in found.Z)
    yield below("row sums of dZ", max(totals), 1e-16, source=CREDIT)
    q = credits(upstream(fixture, run.Y), run.E)
    shifted = router_backward(run.G, tuple(tuple(x + 5.0 for x in row) for row in q))
    yield below("a constant on every credit leaves dZ", distance(shifted, found.Z), 1e-14, source=CREDIT)
    for name, path in (("base", found.X_base), ("experts", found.X_experts), ("router", found.X_router)):
        yield above(f"dX without its {name} path is wrong", max_abs(path), 1e-3, source=GRADIENTS)


def collapse_checks(fixture: OperatorFixture) -> Iterator[Check]:
    """Identical experts, a saturated router, and top-1: three ways to leave a router without evidence."""
    point = start(fixture)
    run = forward(fixture, "dense_soft", point)
    D = upstream(fixture, run.Y)
    same = router_backward(run.G, credits(D, (run.E[0],) * len(run.E)))
    yield below("identical experts leave dZ", max_abs(same), 1e-16, source=WITNESS)
    g = softmax(fixture.saturated_logits)
    require_length("saturated_logits", g, len(run.E))
    yield equal("saturated logits", fixture.saturated_logits, (16.0, 0.0, -16.0), source=WITNESS)
    yield close("first saturated gate", g[0], 0.999999887, source=WITNESS, digits=9)
    yield close("second saturated gate", g[1], 1.13e-7, source=WITNESS, digits=9)
    yield close("third saturated gate", g[2], 1.27e-14, source=WITNESS, digits=16)
    saturated = router_backward((g,) * len(D), credits(D, run.E))
    yield below("weakest gradient of a saturated router", max(abs(row[2]) for row in saturated), 5e-16, source=WITNESS)
    hard = backward(fixture, point, forward(fixture, "selected_top1", point))
    yield equal("top-1 gives dZ = 0", hard.Z, zeros(*shape(hard.Z)), source=PIECEWISE)
    fixed = tuple((1.0, 0.0, 0.0) for _ in D)
    starved = tuple(expert_backward(point["X"], e, scale_rows(c, D)) for e, c in _columns(fixture, point, fixed))
    yield equal(
        "route fixed on expert 0 gives dZ = 0", max_abs(router_backward(fixed, credits(D, run.E))), 0.0, source=WITNESS
    )
    moves = tuple(max_abs(part.A) + max_abs(part.B) > 0.0 for part in starved)
    yield equal("experts that receive a gradient", moves, (True, False, False), source=WITNESS)


def _columns(fixture: OperatorFixture, point: Point, G: Matrix) -> Iterator[tuple[Expert, Vector]]:
    return zip(members(fixture, point), transpose(G), strict=True)


def evaluate(fixture: OperatorFixture) -> Iterator[Check]:
    """Every check of R 0x01 and 0x02."""
    T, d_in, d_out, r, J = 3, 6, 5, 2, 3
    require_shape("X", fixture.X, (T, d_in))
    require_shape("W", fixture.W, (d_out, d_in))
    require_shape("R", fixture.R, (J, d_in))
    require_length("b", fixture.b, J)
    require_shape("target", fixture.target, (T, d_out))
    for expert in fixture.experts:
        require_shape("A", expert.A, (r, d_in))
        require_shape("B", expert.B, (d_out, r))
    if not 1 <= fixture.k < J:
        raise FixtureRefusedError("k", fixture.k, f"1..{J - 1}")
    yield from forward_checks(fixture)
    yield from path_checks(fixture)
    yield from collapse_checks(fixture)
    yield from gradient_checks(fixture)


LOGITS: Matrix = ((0.5, -0.375, 1.5), (0.25, 1.25, -0.75), (1.25, -0.75, 0.25))
CREDITS: Matrix = (
    (0.011514775, -0.002016115, 0.045584498),
    (0.010802571, -0.039402837, 0.023789433),
    (0.002978504, -0.013562397, 0.024066014),
)
LOSSES: Vector = (0.508878726, 0.510758785, 0.510758785, 0.504784080, 0.508878726)
ENTROPIES: Vector = (0.838387, 0.582203, 0.582203, 0.0, 0.838387)

ORACLE = Oracle(
    name="routed_operator",
    document="R",
    sections=("0x01A", "0x01B", "0x01C", "0x01D", "0x01E", "0x02A", "0x02B", "0x02C", "0x02D"),
    module=__name__,
    fixture=OperatorFixture,
    evaluate=evaluate,
    proves=(
        "the dense and selected operator and every local gradient, the three paths of dX included",
        "postmask and selected routing share numbers while their materialized rows differ",
        "identical experts, saturation and top-1 starve a router or its experts",
    ),
    does_not_prove=(
        "that a trained router collapses or does not",
        "a derivative across a change of support, or that any kernel skips unselected experts",
        "the losses and entropies the document prints for tensors it does not show",
    ),
    own=("X", "W", "R", "b", "experts", "target", "tied_logits"),
)
