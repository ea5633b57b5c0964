"""From a noncausal teacher to a causal decision: direct router BCE and the stopped auxiliary predictor (C 0x05A-0x05K).

Shapes: X [B, S, d]; w_r, w_p, delta [d]; r (router logit), a (predictor logit), z (teacher) [B, S]. Rows are counted
from 0. One linear logit stands for the paper's small predictor MLP, as in C 0x05D.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from oracles.checks import Check, above, close, equal, gradient
from oracles.conditional.attention import scaled, sigmoid, stable_top
from oracles.differences import Point, central, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import Matrix, Vector, add, dot, max_abs, require_length, require_shape, zeros
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle

WITNESS, VARIABLES, DIRECT, STOPPED = "C 0x05A", "C 0x05B", "C 0x05C", "C 0x05D"
THRESHOLD, COUNTS, CLOSURE, HANDOFF = "C 0x05E", "C 0x05F", "C 0x05J", "C 0x05K"

NEVER = -math.inf


class ModCausalFixture(Fixture):
    """Fifteen valid rows in two sequences; X is ours and gives the printed witness and the whole table of C 0x05F."""

    X: tuple[FixtureMatrix, FixtureMatrix]
    valid: tuple[tuple[bool, ...], tuple[bool, ...]]
    C: int
    w_r: FixtureVector
    b_r: float
    w_p: FixtureVector
    b_p: float
    lambda_r: float
    lambda_p: float
    thresholds: tuple[float, float, float]
    comparator: Literal["greater", "greater_or_equal"]
    predictor_input: Literal["stopped", "attached"]
    delta: FixtureVector
    delta_gate: Literal["router_logit", "predictor_probability"]


class Counts(NamedTuple):
    """Decisions against the retrospective teacher."""

    tp: int
    fp: int
    tn: int
    fn: int


def logits(X: Matrix, w: Vector, b: float) -> Vector:
    """x w + b for every row of one sequence."""
    return tuple(dot(x, w) + b for x in X)


def teacher(r: Vector, valid: tuple[bool, ...], C: int) -> tuple[bool, ...]:
    """z: complete-sequence StableTopC over the valid rows, a hard and stopped target."""
    masked = tuple(x if v else NEVER for x, v in zip(r, valid, strict=True))
    chosen = stable_top(masked, C)
    return tuple(i in chosen for i in range(len(r)))


def valid_rows(fixture: ModCausalFixture) -> tuple[tuple[int, int], ...]:
    """(sequence, row) of every valid row."""
    return tuple((b, i) for b, row in enumerate(fixture.valid) for i, v in enumerate(row) if v)


def bce(logit: float, z: bool) -> float:
    """BCEWithLogits: log(1 + exp(q)) - z q, without overflow."""
    return max(logit, 0.0) + math.log1p(math.exp(-abs(logit))) - z * logit


class Objective(NamedTuple):
    """lambda / N sum BCEWithLogits(x w + b, z) over the valid rows, with z fixed."""

    rows: tuple[tuple[int, int], ...]
    z: tuple[tuple[bool, ...], ...]
    weight: float

    def logit(self, point: Point, b: int, i: int) -> float:
        """The logit of one row."""
        return dot(point[f"X{b}"][i], point["w"][0]) + point["b"][0][0]

    def loss(self, point: Point) -> float:
        """The mean loss."""
        terms = (bce(self.logit(point, b, i), self.z[b][i]) for b, i in self.rows)
        return self.weight / len(self.rows) * math.fsum(terms)

    def gradient(self, point: Point, *, stopped: bool) -> dict[str, Matrix]:
        """lambda / N (sigma - z) carried into w, b and, unless the input is stopped, into X."""
        grads = {name: zeros(len(value), len(value[0])) for name, value in point.items()}
        for b, i in self.rows:
            q_bar = self.weight / len(self.rows) * (sigmoid(self.logit(point, b, i)) - self.z[b][i])
            x = point[f"X{b}"][i]
            grads["w"] = add(grads["w"], (scaled(q_bar, x),))
            grads["b"] = ((grads["b"][0][0] + q_bar,),)
            if not stopped:
                rows = tuple(
                    scaled(q_bar, point["w"][0]) if j == i else (0.0,) * len(x) for j in range(len(point[f"X{b}"]))
                )
                grads[f"X{b}"] = add(grads[f"X{b}"], rows)
        return grads


def executes(fixture: ModCausalFixture, logit: float, threshold: float) -> bool:
    """q > logit(tau), strict."""
    bound = math.log(threshold / (1.0 - threshold))
    return logit > bound or (fixture.comparator == "greater_or_equal" and logit == bound)


def confusion(decided: list[bool], target: list[bool]) -> Counts:
    """TP, FP, TN, FN."""
    pairs = list(zip(decided, target, strict=True))
    return Counts(*(pairs.count(pair) for pair in ((True, True), (True, False), (False, False), (False, True))))


def next_hidden(fixture: ModCausalFixture, x: Vector, r: float, a: float) -> Vector:
    """x + r f for an executed row; a predictor probability as gate is the trap of C 0x05E."""
    gate = r if fixture.delta_gate == "router_logit" else sigmoid(a)
    return add((x,), (scaled(gate, fixture.delta),))[0]


def witness_checks(fixture: ModCausalFixture, r: tuple[Vector, ...], a: tuple[Vector, ...]) -> Iterator[Check]:
    """Later scores take a row's place: a prefix choice is causal and is not the teacher."""
    complete = tuple(teacher(row, valid, fixture.C) for row, valid in zip(r, fixture.valid, strict=True))
    yield close(
        "witness and later logits",
        (r[0][1], r[0][3], r[0][5]),
        (-0.14, 0.81, 0.79),
        source=WITNESS,
        digits=2,
        tolerance=1e-12,
    )
    yield equal(
        "token 1 in its prefix top-C", teacher(r[0][:2], fixture.valid[0][:2], fixture.C)[1], True, source=WITNESS
    )
    yield equal("token 1 in the complete top-C", complete[0][1], False, source=WITNESS)
    chosen = tuple(tuple(i for i, z in enumerate(row) if z) for row in complete)
    yield equal("teacher rows", chosen, ((3, 5), (1, 5)), source=VARIABLES)
    yield equal("C", fixture.C, 2, source=VARIABLES)
    rows = valid_rows(fixture)
    yield equal("valid rows and positives", (len(rows), sum(complete[b][i] for b, i in rows)), (15, 4), source=COUNTS)
    yield close("router logits", r, ROUTER_LOGITS, source=VARIABLES, digits=4, tolerance=1e-12)
    yield close("predictor logits", a, PREDICTOR_LOGITS, source=VARIABLES, digits=2, tolerance=1e-12)


def gradient_checks(fixture: ModCausalFixture, z: tuple[tuple[bool, ...], ...]) -> Iterator[Check]:
    """Both objectives against differences: the direct one enters X, the stopped one does not."""
    rows = valid_rows(fixture)
    hidden = {"X0": fixture.X[0], "X1": fixture.X[1]}
    direct = Objective(rows, z, fixture.lambda_r)
    at: dict[str, Matrix] = {**hidden, "w": (fixture.w_r,), "b": ((fixture.b_r,),)}
    yield close("direct BCE", direct.loss(at), DIRECT_LOSS, source=DIRECT, digits=12)
    grads = direct.gradient(at, stopped=False)
    yield gradient("direct gradient in w, b and X", compare(direct.loss, at, grads), 3e-11, source=DIRECT)
    yield above("direct BCE reaches the hidden rows", max_abs(grads["X0"]), 1e-3, source=DIRECT)
    one = fixture.lambda_r / len(rows) * (sigmoid(-0.14) - 0.0)
    expected = scaled(one, fixture.w_r)
    yield close(
        "direct gradient of the witness row", grads["X0"][1], expected, source=DIRECT, digits=12, tolerance=1e-15
    )
    yield from stopped_checks(fixture, z, rows, hidden)


def stopped_checks(
    fixture: ModCausalFixture,
    z: tuple[tuple[bool, ...], ...],
    rows: tuple[tuple[int, int], ...],
    hidden: dict[str, Matrix],
) -> Iterator[Check]:
    """The predictor learns from a payload; its forward is sensitive to X, its backward returns zero."""
    auxiliary = Objective(rows, z, fixture.lambda_p)
    at: dict[str, Matrix] = {**hidden, "w": (fixture.w_p,), "b": ((fixture.b_p,),)}
    yield close("predictor BCE", auxiliary.loss(at), PREDICTOR_LOSS, source=STOPPED, digits=12)
    grads = auxiliary.gradient(at, stopped=fixture.predictor_input == "stopped")
    into_hidden = max(max_abs(grads[name]) for name in hidden)
    yield equal("stopped input: VJP into X", into_hidden, 0.0, source=STOPPED)
    held = compare(lambda p: auxiliary.loss({**p, **hidden}), at, grads)
    yield gradient("predictor gradient with the payload held", held, 3e-11, source=STOPPED)
    sensitive = max(max_abs(value) for value in central(lambda p: auxiliary.loss({**at, **p}), hidden).values())
    yield above("the forward still depends on X", sensitive, 1e-3, source=STOPPED)


def threshold_checks(
    fixture: ModCausalFixture, r: tuple[Vector, ...], a: tuple[Vector, ...], z: tuple[tuple[bool, ...], ...]
) -> Iterator[Check]:
    """Three thresholds: confusion, selected count, drift, and the rates that hide them."""
    rows = valid_rows(fixture)
    target = [z[b][i] for b, i in rows]
    table = [confusion([executes(fixture, a[b][i], tau) for b, i in rows], target) for tau in fixture.thresholds]
    yield equal("thresholds", fixture.thresholds, (0.50, 0.55, 0.60), source=COUNTS)
    for name, column, printed in (
        ("TP", [c.tp for c in table], (4, 4, 1)),
        ("FP", [c.fp for c in table], (4, 1, 0)),
        ("TN", [c.tn for c in table], (7, 10, 11)),
        ("FN", [c.fn for c in table], (0, 0, 3)),
        ("selected", [c.tp + c.fp for c in table], (8, 5, 1)),
        ("drift FP - FN", [c.fp - c.fn for c in table], (4, 1, -3)),
    ):
        yield equal(name, tuple(column), printed, source=COUNTS)
    yield from rate_checks(table)
    yield equal(
        "probability 0.5 is logit 0",
        executes(fixture, 1e-300, 0.5) and not executes(fixture, -1e-300, 0.5),
        True,
        source=DIRECT,
    )
    budget = tuple(c.tp + c.fn for c in table)
    yield equal("teacher total at every threshold", budget, (2 * fixture.C,) * 3, source=COUNTS)
    executed = next_hidden(fixture, fixture.X[0][3], r[0][3], a[0][3])
    update = add((executed,), (scaled(-1.0, fixture.X[0][3]),))[0]
    yield close(
        "update of row 3: r times the delta", update, (0.81, -1.62), source=THRESHOLD, digits=2, tolerance=1e-12
    )


def rate_checks(table: list[Counts]) -> Iterator[Check]:
    """Precision, recall, accuracy, and always-skip as the baseline."""
    if any(c.tp == 0 for c in table):
        raise FixtureRefusedError("thresholds", "no true positive", "at least one true positive at each threshold")
    total = sum(table[0])
    precision = tuple(c.tp / (c.tp + c.fp) for c in table)
    recall = tuple(c.tp / (c.tp + c.fn) for c in table)
    accuracy = tuple((c.tp + c.tn) / total for c in table)
    yield close("precision", precision, (0.50, 0.80, 1.00), source=COUNTS, digits=2, tolerance=1e-15)
    yield close("recall", recall, (1.00, 1.00, 0.25), source=COUNTS, digits=2, tolerance=1e-15)
    yield close("accuracy", accuracy, (0.733, 0.933, 0.800), source=COUNTS, digits=3)
    skip = confusion(
        [False] * total, [True] * (table[0].tp + table[0].fn) + [False] * (total - table[0].tp - table[0].fn)
    )
    yield equal("always skip: correct rows of all", (skip.tn, total), (11, 15), source=COUNTS)
    yield close("always skip: accuracy", skip.tn / total, 0.733, source=COUNTS, digits=3)


def require_shapes(fixture: ModCausalFixture) -> None:
    """Two sequences of eight rows of width 2, and thresholds inside (0, 1)."""
    for b in (0, 1):
        require_shape(f"X[{b}]", fixture.X[b], (8, 2))
        require_length(f"valid[{b}]", fixture.valid[b], 8)
    for name, vector in (("w_r", fixture.w_r), ("w_p", fixture.w_p), ("delta", fixture.delta)):
        require_length(name, vector, 2)
    if not all(0.0 < tau < 1.0 for tau in fixture.thresholds):
        raise FixtureRefusedError("thresholds", fixture.thresholds, "probabilities inside (0, 1)")


def evaluate(fixture: ModCausalFixture) -> Iterator[Check]:
    """Every check of C 0x05A to 0x05K, in the order of the subsections."""
    require_shapes(fixture)
    r = tuple(logits(X, fixture.w_r, fixture.b_r) for X in fixture.X)
    a = tuple(logits(X, fixture.w_p, fixture.b_p) for X in fixture.X)
    z = tuple(teacher(row, valid, fixture.C) for row, valid in zip(r, fixture.valid, strict=True))
    yield from witness_checks(fixture, r, a)
    yield from gradient_checks(fixture, z)
    yield from threshold_checks(fixture, r, a, z)


# Our rows, chosen so that these logits come out; the last row of the second sequence is padding.
ROUTER_LOGITS = (
    (0.05, -0.14, 0.30, 0.81, -0.5625, 0.79, 0.10, -0.62),
    (0.44, 0.92, -0.33, 0.15, -0.21, 0.67, -0.75, 1.50),
)
PREDICTOR_LOGITS = (
    (0.12, -0.45, 0.08, 0.52, 0.00, 0.31, 0.25, -0.30),
    (0.16, 0.27, -0.22, -0.18, -0.36, 0.38, -0.64, 1.00),
)
# Independent evaluation in float64.
DIRECT_LOSS = 0.284846609858
PREDICTOR_LOSS = 0.151434467758

ORACLE = Oracle(
    name="mod_causal",
    document="C",
    sections=("0x05A", "0x05B", "0x05C", "0x05D", "0x05E", "0x05F", "0x05J", "0x05K"),
    module=__name__,
    fixture=ModCausalFixture,
    evaluate=evaluate,
    proves=(
        "a complete-sequence teacher that no prefix choice reproduces",
        "who receives the gradient of the direct objective and of the stopped predictor",
        "confusion, selected count and drift at three strict thresholds; the raw router scalar stays the gate",
    ),
    does_not_prove=(
        "teacher parity, an exact count or an unchanged output distribution while decoding",
        "the source-reported accuracies, or the state that a decision leaves in a cache",
    ),
    own=("X", "w_r", "b_r", "w_p", "b_p", "lambda_r", "lambda_p", "delta"),
    document_mutations=27,
)
