"""AdaLoRA: one global rank budget over triplets, scored by smoothed sensitivity and its uncertainty (V 0x03).

Shapes, a module: P [d_out, r]; lam [r]; Q [r, d_in]; Delta W = P diag(lam) Q. lora_B, lora_E, lora_A in the code.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.checks import Check, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    identity,
    inner,
    matmul,
    max_abs,
    product,
    require_length,
    require_shape,
    scale,
    scale_rows,
    shape,
    squared_frobenius,
    subtract,
    transpose,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle

TRIPLET, ORTHOGONAL, SENSITIVITY, BUDGET = "V 0x03B", "V 0x03C", "V 0x03D", "V 0x03E"
PROJECTION, ORDER, TRACE, STATE = "V 0x03F", "V 0x03G", "V 0x03H", "V 0x03I"

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Label = tuple[str, int]
Mask = tuple[bool, ...]


class Module(Fixture):
    """One adapted matrix and the gradients of one mini-batch."""

    name: Literal["q_proj", "v_proj"]
    lam: FixtureVector
    P: FixtureMatrix
    Q: FixtureMatrix
    grad_lam: FixtureVector
    grad_p: FixtureMatrix
    grad_q: FixtureMatrix


class Sensitivity(Fixture):
    """Two equal snapshots update zero-initialised averages; the scored parameter is that after or before the step."""

    beta1: float
    beta2: float
    snapshots: Positive
    slice: Literal["mean", "sum"]
    parameter: Literal["post_update", "pre_update"]
    learning_rate: float


class Schedule(Fixture):
    """The cubic budget; the mask interval is ours (2 and 4 both fit the table)."""

    b0: Positive
    b_target: Positive
    T: Positive
    ti: Count
    tf: Count
    interval: Positive
    steps: tuple[Count, ...]


class Projection(Fixture):
    """What competes, what a tie does, and what a mask writes."""

    scope: Literal["global", "per_module"]
    ties: Literal["strict", "fill"]
    zeroes: Literal["lambda", "triplet"]
    tied_scores: FixtureVector


class Scale(Fixture):
    """alpha / (ranknum + epsilon)."""

    alpha: float
    epsilon: Annotated[float, Field(gt=0)]
    rank: Literal["initial", "active"]


class AdaloraFixture(Fixture):
    """q_proj and v_proj of V 0x03H, each of initial rank three; factor values and gradients are ours."""

    modules: tuple[Module, ...]
    sensitivity: Sensitivity
    schedule: Schedule
    projection: Projection
    scale: Scale
    G: FixtureMatrix


class Average(NamedTuple):
    """The two exponential states of one scalar."""

    sensitivity: float
    uncertainty: float

    @property
    def score(self) -> float:
        """s = I_bar U_bar."""
        return self.sensitivity * self.uncertainty


def delta(P: Matrix, lam: Vector, Q: Matrix) -> Matrix:
    """P diag(lam) Q."""
    return matmul(P, scale_rows(lam, Q))


def averages(importance: float, s: Sensitivity, snapshots: int) -> Average:
    """I_bar and U_bar after equal snapshots; U_bar is centred on the newly updated I_bar."""
    state = Average(0.0, 0.0)
    for _ in range(snapshots):
        smoothed = s.beta1 * state.sensitivity + (1.0 - s.beta1) * importance
        deviation = abs(importance - smoothed)
        state = Average(smoothed, s.beta2 * state.uncertainty + (1.0 - s.beta2) * deviation)
    return state


def importance(w: float, g: float, s: Sensitivity) -> float:
    """|w dL/dw|; before the step the parameter was w + learning_rate g."""
    return abs((w if s.parameter == "post_update" else w + s.learning_rate * g) * g)


def triplet_scores(module: Module, s: Sensitivity, snapshots: int) -> Vector:
    """S_i = s(lam_i) + mean_j s(P_ji) + mean_j s(Q_ij)."""

    def part(weights: Vector, grads: Vector) -> float:
        scores = (averages(importance(w, g, s), s, snapshots).score for w, g in zip(weights, grads, strict=True))
        return math.fsum(scores) / (len(weights) if s.slice == "mean" else 1)

    columns = zip(transpose(module.P), transpose(module.grad_p), strict=True)
    rows = zip(module.Q, module.grad_q, strict=True)
    single = zip(module.lam, module.grad_lam, strict=True)
    return tuple(
        part((lam,), (g,)) + part(*column) + part(*row)
        for (lam, g), column, row in zip(single, columns, rows, strict=True)
    )


def retained(scores: Vector, budget: int, ties: str) -> Mask:
    """Scores strictly above the (n - budget)-th smallest; `fill` keeps the earlier of tied scores instead."""
    if budget >= len(scores):
        return (True,) * len(scores)
    if ties == "fill":
        kept = sorted(range(len(scores)), key=lambda i: -scores[i])[:budget]
        return tuple(i in kept for i in range(len(scores)))
    threshold = sorted(scores)[len(scores) - budget - 1]
    return tuple(x > threshold for x in scores)


def pattern(scores: Matrix, budget: int, p: Projection) -> tuple[Mask, ...]:
    """The rank pattern of every module; scores of all modules compete for one budget."""
    if p.scope == "per_module":
        return tuple(retained(row, budget // len(scores), p.ties) for row in scores)
    flags = iter(retained(tuple(x for row in scores for x in row), budget, p.ties))
    return tuple(tuple(next(flags) for _ in row) for row in scores)


def budget(t: int, c: Schedule, *, printed: bool = False) -> float:
    """The untruncated budget; `printed` is the paper's numerator t - ti - tf."""
    if t <= c.ti and not printed:
        return c.b0
    if t > c.T - c.tf:
        return c.b_target
    span = c.T - c.tf - c.ti
    if span <= 0:
        raise FixtureRefusedError("schedule", [c.ti, c.tf, c.T], "ti + tf < T")
    return c.b_target + (c.b0 - c.b_target) * (1.0 - (t - c.ti - (c.tf if printed else 0)) / span) ** 3


def phase(t: int, c: Schedule) -> str:
    """Initial warmup, reduction or final warmup."""
    return "initial" if t <= c.ti else "reduction" if t <= c.T - c.tf else "final"


def masks(t: int, c: Schedule) -> bool:
    """New masks at interval steps of the reduction; the fixed pattern at every final step."""
    return {"initial": False, "reduction": t % c.interval == 0, "final": True}[phase(t, c)]


def masked(module: Module, keep: Mask, zeroes: str) -> tuple[Matrix, Vector, Matrix]:
    """The factors after a mask event: full shape, singular values (or whole triplets) zeroed."""
    flags = tuple(float(k) for k in keep)
    lam = tuple(f * x for f, x in zip(flags, module.lam, strict=True))
    if zeroes == "lambda":
        return module.P, lam, module.Q
    return transpose(scale_rows(flags, transpose(module.P))), lam, scale_rows(flags, module.Q)


def compact(module: Module, keep: Mask) -> tuple[Matrix, Vector, Matrix]:
    """Retained columns of P, entries of lam and rows of Q; at least one is needed."""
    kept = tuple(i for i, k in enumerate(keep) if k)
    if not kept:
        raise FixtureRefusedError(module.name, "no retained triplet", "an active rank above zero")
    P = tuple(tuple(row[i] for i in kept) for row in module.P)
    return P, tuple(module.lam[i] for i in kept), tuple(module.Q[i] for i in kept)


def scalars(P: Matrix, lam: Vector, Q: Matrix) -> int:
    """Stored factor scalars r (d_out + d_in + 1)."""
    return len(lam) * (len(P) + shape(Q)[1] + 1)


def orthogonality(P: Matrix, Q: Matrix) -> float:
    """R = |P^T P - I|^2 + |Q Q^T - I|^2."""
    unit = identity(len(Q))
    left, right = matmul(transpose(P), P), matmul(Q, transpose(Q))
    return squared_frobenius(subtract(left, unit)) + squared_frobenius(subtract(right, unit))


def orthogonality_backward(P: Matrix, Q: Matrix) -> dict[str, Matrix]:
    """dR/dP = 4 P (P^T P - I), dR/dQ = 4 (Q Q^T - I) Q."""
    unit = identity(len(Q))
    left, right = subtract(matmul(transpose(P), P), unit), subtract(matmul(Q, transpose(Q)), unit)
    return {"P": scale(4.0, matmul(P, left)), "Q": scale(4.0, matmul(right, Q))}


def triplet_backward(P: Matrix, lam: Vector, Q: Matrix, G: Matrix) -> dict[str, Matrix]:
    """dP = G Q^T Lambda, dlam_i = P_i^T G Q_i, dQ = Lambda P^T G for G = dL/dDelta."""
    inside = product(transpose(P), G, transpose(Q))
    grad_p = transpose(scale_rows(lam, matmul(Q, transpose(G))))
    grad_lam = tuple(row[i] for i, row in enumerate(inside))
    return {"P": grad_p, "lam": (grad_lam,), "Q": scale_rows(lam, matmul(transpose(P), G))}


def triplet_checks(fixture: AdaloraFixture) -> Iterator[Check]:
    """Gradients of one triplet update and of the orthogonality term; the zero start."""
    m, G = fixture.modules[0], fixture.G
    at = {"P": m.P, "lam": (m.lam,), "Q": m.Q}
    grads = triplet_backward(m.P, m.lam, m.Q, G)
    yield equal("dlam", grads["lam"][0], (0.625, 5.0, -7.0), source=TRIPLET)

    def loss(p: Point) -> float:
        return inner(G, delta(p["P"], p["lam"][0], p["Q"]))

    def penalty(p: Point) -> float:
        return orthogonality(p["P"], p["Q"])

    yield gradient("triplet gradients", compare(loss, at, grads), 1e-8, source=TRIPLET)
    start = (0.0,) * len(m.lam)
    first = triplet_backward(m.P, start, m.Q, G)
    still = (max_abs(delta(m.P, start, m.Q)), max_abs(first["P"]), max_abs(first["Q"]))
    yield equal("zero start: update, dP, dQ", still, (0.0, 0.0, 0.0), source=TRIPLET)
    yield equal("zero start: dlam", first["lam"][0], (0.625, 5.0, -7.0), source=TRIPLET)
    pair = {"P": m.P, "Q": m.Q}
    held = compare(penalty, pair, orthogonality_backward(m.P, m.Q))
    yield gradient("orthogonality gradients", held, 1e-7, source=ORTHOGONAL)


def score_checks(fixture: AdaloraFixture) -> Iterator[Check]:
    """Both averages, the six scores in their order, and what another call order or a lost state gives."""
    s = fixture.sensitivity
    state = averages(3.0, s, s.snapshots)
    yield equal("averages of importance 3", (state.sensitivity, state.uncertainty), (2.25, 0.75), source=SENSITIVITY)
    scores = {m.name: triplet_scores(m, s, s.snapshots) for m in fixture.modules}
    ranked = sorted(((x, (n, i)) for n, row in scores.items() for i, x in enumerate(row)), key=lambda e: -e[0])
    yield equal("scores in order", tuple(x for x, _ in ranked), SCORES, source=TRACE)
    yield equal("triplets in order", tuple(label for _, label in ranked), TRIPLETS, source=TRACE)
    v = fixture.modules[1]
    before = s.model_copy(update={"parameter": "pre_update"})
    yield equal("v_proj[0] scored before the step", triplet_scores(v, before, 2)[0], 14.0625, source=ORDER)
    yield equal("v_proj[0] after a resume without averages", triplet_scores(v, s, 1)[0], 3.375, source=STATE)


def budget_checks(fixture: AdaloraFixture) -> Iterator[Check]:
    """The schedule table, and the printed equation at t_i."""
    c = fixture.schedule
    yield equal("steps", c.steps, (0, 2, 3, 4, 8, 9), source=TRACE)
    yield equal("budgets", tuple(int(budget(t, c)) for t in c.steps), (6, 6, 4, 3, 3, 3), source=TRACE)
    yield equal("phases", tuple(phase(t, c) for t in c.steps), PHASES, source=TRACE)
    yield equal("mask events", tuple(t for t in c.steps if masks(t, c)), (4, 8, 9), source=TRACE)
    yield close("the paper's printed equation at ti", budget(c.ti, c, printed=True), 10.111, source=BUDGET, digits=3)


def projection_checks(fixture: AdaloraFixture) -> Iterator[Check]:
    """The global pattern, the strict tie, and masks that keep every vector."""
    p = fixture.projection
    strict = retained(p.tied_scores, 3, p.ties)
    yield equal("tied scores", p.tied_scores, (10.0, 8.0, 5.0, 5.0), source=PROJECTION)
    yield equal("strict threshold underfills", strict, (True, True, False, False), source=PROJECTION)
    keep = final_pattern(fixture)
    yield equal("rank pattern", keep, ((True, False, False), (True, True, False)), source=TRACE)
    yield equal("active ranks", tuple(map(sum, keep)), (1, 2), source=TRACE)
    full = [masked(m, k, p.zeroes) for m, k in zip(fixture.modules, keep, strict=True)]
    vectors = sum(1 for P, _, Q in full for row in P + Q for x in row if x)
    yield equal("vector entries a mask keeps", vectors, 24, source=TRIPLET)
    restored = (delta(P, m.lam, Q) for (P, _, Q), m in zip(full, fixture.modules, strict=True))
    original = (delta(m.P, m.lam, m.Q) for m in fixture.modules)
    lost = max(distance(a, b) for a, b in zip(restored, original, strict=True))
    yield equal("a masked triplet can come back", lost, 0.0, source=TRIPLET)
    yield from artifact_checks(fixture, keep)


def final_pattern(fixture: AdaloraFixture) -> tuple[Mask, ...]:
    """The pattern at the target budget."""
    s = fixture.sensitivity
    scores = tuple(triplet_scores(m, s, s.snapshots) for m in fixture.modules)
    return pattern(scores, fixture.schedule.b_target, fixture.projection)


def artifact_checks(fixture: AdaloraFixture, keep: tuple[Mask, ...]) -> Iterator[Check]:
    """Resident scalars against the compact artifact, equal updates, and the scale.

    The resume points are: pattern fixed, budget still falling (score state needed too), compact export.
    """
    pairs = tuple(zip(fixture.modules, keep, strict=True))
    factors = sum(scalars(m.P, m.lam, m.Q) for m in fixture.modules)
    yield equal("factor, score and moment scalars", (factors, 3 * factors, 2 * factors), (30, 90, 60), source=STATE)
    small = sum(scalars(*compact(m, k)) for m, k in pairs)
    yield equal("compact scalars", small, 15, source=STATE)
    levels = (factors + 2 * factors, factors + 2 * factors + 3 * factors, small)
    yield equal("scalars at three resume points", levels, (90, 180, 15), source=STATE)
    full = tuple(delta(*masked(m, k, fixture.projection.zeroes)) for m, k in pairs)
    yield equal("masked updates", full, UPDATES, source=STATE)
    error = max(distance(a, delta(*compact(m, k))) for a, (m, k) in zip(full, pairs, strict=True))
    yield equal("compact against masked update", error, 0.0, source=STATE)
    c = fixture.scale
    rank = len(keep[0]) if c.rank == "initial" else sum(keep[0])
    yield close("scale of q_proj", c.alpha / (rank + c.epsilon), 5.333315555615, source=TRIPLET, digits=12)


def evaluate(fixture: AdaloraFixture) -> Iterator[Check]:
    """Every check of V 0x03, in the order of its subsections."""
    require_length("modules", fixture.modules, 2)
    for m in fixture.modules:
        r = len(m.lam)
        require_shape(f"{m.name}.P", m.P, (2, r))
        require_shape(f"{m.name}.Q", m.Q, (r, 2))
        require_length(f"{m.name}.grad_lam", m.grad_lam, r)
        require_shape(f"{m.name}.grad_p", m.grad_p, (2, r))
        require_shape(f"{m.name}.grad_q", m.grad_q, (r, 2))
    require_shape("G", fixture.G, (2, 2))
    yield from triplet_checks(fixture)
    yield from score_checks(fixture)
    yield from budget_checks(fixture)
    yield from projection_checks(fixture)


SCORES: Vector = (5.0625, 3.515625, 3.375, 2.25, 1.6875, 0.5625)
TRIPLETS: tuple[Label, ...] = (
    *(("v_proj", 0), ("v_proj", 1), ("q_proj", 0)),
    *(("q_proj", 1), ("v_proj", 2), ("q_proj", 2)),
)
PHASES = ("initial", "initial", "reduction", "reduction", "reduction", "final")
UPDATES: tuple[Matrix, ...] = (
    ((1.0, -2.0), (0.5, -1.0)),
    add(((3.375, -3.375), (-3.375, 3.375)), ((-1.953125, 3.90625), (-0.78125, 1.5625))),
)

ORACLE = Oracle(
    name="adalora",
    document="V",
    sections=("0x03B", "0x03C", "0x03D", "0x03E", "0x03F", "0x03G", "0x03H", "0x03I"),
    module=__name__,
    fixture=AdaloraFixture,
    evaluate=evaluate,
    proves=(
        "triplet scores from weights, gradients and both averages, in the stated order",
        "the code's cubic budget, its mask events, and the printed equation that exceeds the initial budget",
        "the global strict projection, masks that can be undone, and the compact artifact of the same update",
    ),
    does_not_prove=(
        "that the allocation helps a task, or that learned triplets are singular vectors",
        "a mask interval: the table fits 2 and 4",
    ),
    own=("modules", "sensitivity.parameter", "sensitivity.learning_rate", "schedule.interval", "G"),
)
