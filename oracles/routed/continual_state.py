"""Continual adapters: ordered state, two overlap losses, an attentional selector, and what forgetting means (R 0x06).

Shapes: U [d_out, R], A_t [d_out, r] in the paper's order; code orientation is their transpose. X [N, d_in],
F_i = X dW_i^T [N, d_out], raters u_i [d_out], S and G [N, t + 1]; evaluation R [T, T].
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.linalg import rank
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    apply,
    distance,
    elementwise,
    frobenius,
    hstack,
    inner,
    matmul,
    max_abs,
    product,
    require_length,
    require_shape,
    scale,
    shape,
    softmax,
    squared_frobenius,
    subtract,
    transpose,
    vstack,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.routed.continual_state_history import Evaluation, Held, History, evaluation_checks, history_checks
from oracles.routed.mixture import mix

PAPER, CODE, CAT = "R 0x06D", "R 0x06E", "R 0x06F"
CAPACITY, SELECTOR, SPARSITY, GROWTH = "R 0x06G", "R 0x06H", "R 0x06I", "R 0x06J"


class OLora(Fixture):
    """Old bases U and the current A_t as printed; the task batch, its upstream gradient and an opened B are ours."""

    U: FixtureMatrix
    A_t: FixtureMatrix
    lambda1: float
    lambda2: float
    X: FixtureMatrix
    G: FixtureMatrix
    B_open: FixtureMatrix


class Cat(Fixture):
    """Old and new factors with their scales; where a scale goes before concatenation."""

    A_old: FixtureMatrix
    B_old: FixtureMatrix
    A_new: FixtureMatrix
    B_new: FixtureMatrix
    s_old: float
    s_new: float
    scale_enters: Literal["B_new", "nothing"]


class Capacity(Fixture):
    """Ambient dimension, task ranks, and one more direction."""

    dimension: Annotated[int, Field(ge=1)]
    ranks: tuple[Annotated[int, Field(ge=1)], ...]
    fourth: FixtureMatrix


class AmLora(Fixture):
    """One input batch, the base, three task updates and four raters (the first rates the zero branch)."""

    X: FixtureMatrix
    W0: FixtureMatrix
    deltas: tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]
    raters: FixtureMatrix
    rank: Annotated[int, Field(ge=1)]
    penalty: float
    softmax_axis: Literal["branch", "each_branch_alone"]
    changed_rater: FixtureVector


class ContinualFixture(Fixture):
    """The witnesses of R 0x06."""

    olora: OLora
    cat: Cat
    capacity: Capacity
    am: AmLora
    evaluation: Evaluation
    history: History
    releases: tuple[tuple[Held, ...], ...]


def paper_overlap(U: Matrix, A: Matrix) -> float:
    """|U^T A_t|_F^2."""
    return squared_frobenius(matmul(transpose(U), A))


def code_overlap(old: Matrix, new: Matrix) -> Matrix:
    """A_old A_new^T in code orientation, [r_sum, r]; its entrywise L1 norm is the code's loss."""
    return matmul(old, transpose(new))


def entry_l1(a: Matrix) -> float:
    """sum_ij |a_ij|."""
    return math.fsum(abs(x) for row in a for x in row)


def sign(x: float) -> float:
    """-1, 0 or 1."""
    return float((x > 0.0) - (x < 0.0))


def regularizer(olora: OLora, point: Point) -> float:
    """lambda1 |A_old A_new^T|_1 + lambda2 (|A_new| + |B_new|), norms not squared."""
    overlap = entry_l1(code_overlap(transpose(olora.U), point["A"]))
    return olora.lambda1 * overlap + olora.lambda2 * (frobenius(point["A"]) + frobenius(point["B"]))


def unit(a: Matrix) -> Matrix:
    """a / |a|_F, the gradient of an unsquared norm; 0 at 0."""
    length = frobenius(a)
    return scale(1.0 / length, a) if length else a


def regularizer_gradient(olora: OLora, point: Point) -> dict[str, Matrix]:
    """lambda1 sign(A_old A_new^T)^T A_old + lambda2 A_new / |A_new|, and lambda2 B_new / |B_new|."""
    old = transpose(olora.U)
    signs = elementwise(sign, code_overlap(old, point["A"]))
    A = add(scale(olora.lambda1, matmul(transpose(signs), old)), scale(olora.lambda2, unit(point["A"])))
    return {"A": A, "B": scale(olora.lambda2, unit(point["B"]))}


def task_loss(olora: OLora, point: Point) -> float:
    """<G, X A_new^T B_new^T>: a loss whose upstream gradient is G."""
    return inner(olora.G, product(olora.X, transpose(point["A"]), transpose(point["B"])))


def task_gradient(olora: OLora, point: Point) -> dict[str, Matrix]:
    """dA = (G B)^T X and dB = G^T (X A^T)."""
    Z = matmul(olora.X, transpose(point["A"]))
    return {"A": matmul(transpose(matmul(olora.G, point["B"])), olora.X), "B": matmul(transpose(olora.G), Z)}


def concatenated(cat: Cat, forward_scale: float, factor_new: float) -> Matrix:
    """s B_cat A_cat with the new B block multiplied by `factor_new` beforehand."""
    B = hstack(cat.B_old, scale(factor_new, cat.B_new))
    return scale(forward_scale, matmul(B, vstack(cat.A_old, cat.A_new)))


def intended(cat: Cat, s_new: float) -> Matrix:
    """s_old B_old A_old + s_new B_new A_new."""
    return add(scale(cat.s_old, matmul(cat.B_old, cat.A_old)), scale(s_new, matmul(cat.B_new, cat.A_new)))


def naive_cat_error(cat: Cat) -> float:
    """What one forward scale makes of factors trained under two."""
    return distance(concatenated(cat, cat.s_old, 1.0), intended(cat, cat.s_new))


def remaining(dimension: int, ranks: tuple[int, ...]) -> int:
    """Dimensions left for exactly orthogonal task subspaces; over the ceiling is refused."""
    left = dimension - sum(ranks)
    if left < 0:
        raise FixtureRefusedError("capacity.ranks", list(ranks), f"a sum of at most {dimension}")
    return left


def holds_one_more(dimension: int, ranks: tuple[int, ...]) -> bool:
    """Whether one more rank-1 task can be exactly orthogonal to all others."""
    try:
        remaining(dimension, (*ranks, 1))
    except FixtureRefusedError:
        return False
    return True


def branch_features(am: AmLora) -> tuple[Matrix, ...]:
    """F_i = X dW_i^T, the zero branch first."""
    return (zeros(*shape(am.X)), *(matmul(am.X, transpose(delta)) for delta in am.deltas))


def branch_logits(am: AmLora, raters: Matrix) -> Matrix:
    """S[n, i] = <F_i[n], u_i>, stacked before any normalisation."""
    columns = tuple(apply(F, u) for F, u in zip(branch_features(am), raters, strict=True))
    return transpose(columns)


def branch_gates(am: AmLora, raters: Matrix) -> Matrix:
    """Softmax over the branch axis; over each branch alone every gate would be 1."""
    S = branch_logits(am, raters)
    if am.softmax_axis == "branch":
        return tuple(map(softmax, S))
    return elementwise(lambda s: softmax((s,))[0], S)


def selected(am: AmLora, raters: Matrix) -> Matrix:
    """Y = X W0^T + sum_i G[:, i] F_i."""
    return add(matmul(am.X, transpose(am.W0)), mix(branch_gates(am, raters), branch_features(am)))


def paper_checks(olora: OLora) -> Iterator[Check]:
    """Squared Frobenius overlap and its gradient."""
    require_shape("olora.U", olora.U, (3, 2))
    require_shape("olora.A_t", olora.A_t, (3, 1))
    overlap = matmul(transpose(olora.U), olora.A_t)
    yield equal("U^T A_t", overlap, ((0.5,), (-0.25,)), source=PAPER)
    yield equal("paper overlap loss", paper_overlap(olora.U, olora.A_t), 0.3125, source=PAPER)
    found = scale(2.0, product(olora.U, transpose(olora.U), olora.A_t))
    yield equal("paper overlap gradient", found, ((1.0,), (-0.5,), (0.0,)), source=PAPER)
    difference = compare(lambda at: paper_overlap(olora.U, at["A"]), {"A": olora.A_t}, {"A": found})
    yield gradient("paper overlap against differences", difference, 1e-9, source=PAPER)
    by_base = add(*(product(a, transpose(a), olora.A_t) for a in map(_column, transpose(olora.U))))
    yield equal("sum over single old bases", scale(2.0, by_base), found, source=PAPER)
    yield equal("A_t", olora.A_t, ((0.5,), (-0.25,), (1.0,)), source=PAPER)


def _column(values: Vector) -> Matrix:
    return tuple((x,) for x in values)


def code_checks(olora: OLora) -> Iterator[Check]:
    """Entrywise L1 overlap, unsquared norms, and the two forces on the first step."""
    old, new = transpose(olora.U), transpose(olora.A_t)
    overlap = code_overlap(old, new)
    yield equal("code overlap loss", entry_l1(overlap), 0.75, source=CODE)
    subgradient = matmul(transpose(elementwise(sign, overlap)), old)
    yield equal("code overlap subgradient", subgradient, ((1.0, -1.0, 0.0),), source=CODE)
    require_shape("olora.B_open", olora.B_open, (2, 1))
    opened, closed = {"A": new, "B": olora.B_open}, {"A": new, "B": zeros(2, 1)}
    yield close("regularizer", regularizer(olora, opened), 0.886757936, source=CODE, digits=9)
    require_shape("olora.X", olora.X, (2, 3))
    require_shape("olora.G", olora.G, (2, 2))
    first = task_gradient(olora, closed)
    yield equal("task gradient of A at B = 0", max_abs(first["A"]), 0.0, source=CODE)
    yield equal("largest task gradient of B", max_abs(first["B"]), 0.875, source=CODE)
    yield equal("task gradient of B", first["B"], ((0.875,), (-0.0625,)), source=CODE)
    open_A = task_gradient(olora, opened)["A"]
    yield equal("task gradient of A once B is open", open_A, ((0.4375, 0.0625, 0.28125),), source=CODE)
    moves = max_abs(regularizer_gradient(olora, closed)["A"])
    yield close("the regularizer moves A at B = 0", moves, 0.609108945, source=CODE, digits=9)
    for name, point in (("closed", closed), ("open", opened)):
        difference = compare(partial(task_loss, olora), point, task_gradient(olora, point))
        yield gradient(f"task gradients, {name} B", difference, 1e-9, source=CODE)
    difference = compare(partial(regularizer, olora), opened, regularizer_gradient(olora, opened))
    yield gradient("regularizer gradients", difference, 1e-9, source=CODE)


def cat_checks(cat: Cat) -> Iterator[Check]:
    """Concatenation is exact under one scale, wrong under two, repaired by scaling the new block."""
    updates = (matmul(cat.B_old, cat.A_old), matmul(cat.B_new, cat.A_new))
    yield equal("old and new update", updates, (((1.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, 1.0))), source=CAT)
    yield equal("scales", (cat.s_old, cat.s_new), (1.0, 2.0), source=CAT)
    homogeneous = distance(concatenated(cat, cat.s_old, 1.0), intended(cat, cat.s_old))
    yield equal("homogeneous cat error", homogeneous, 0.0, source=CAT)
    yield equal("heterogeneous naive cat error", naive_cat_error(cat), 1.0, source=CAT)
    encoded = cat.s_new / cat.s_old if cat.scale_enters == "B_new" else 1.0
    repaired = distance(concatenated(cat, cat.s_old, encoded), intended(cat, cat.s_new))
    yield equal("scale encoded in the new block", repaired, 0.0, source=CAT)
    ranks = (rank(updates[0]), rank(updates[1]), rank(add(*updates)))
    yield equal("cumulative rank", ranks, (1, 1, 2), source=CAT)


def capacity_checks(capacity: Capacity, olora: OLora) -> Iterator[Check]:
    """Exact orthogonality runs out with the ambient dimension, and does not protect a function."""
    yield equal("dimension and ranks", (capacity.dimension, *capacity.ranks), (3, 1, 1, 1), source=CAPACITY)
    left = remaining(capacity.dimension, capacity.ranks)
    yield equal("remaining orthogonal dimensions", left, 0, source=CAPACITY)
    yield equal("a fourth task fits", holds_one_more(capacity.dimension, capacity.ranks), False, source=CAPACITY)
    three = hstack(olora.U, olora.A_t)
    yield equal("fourth direction", capacity.fourth, ((0.5,), (0.25,), (-0.75,)), source=CAPACITY)
    ranks = (rank(three), rank(hstack(three, capacity.fourth)))
    yield equal("rank of three directions and of four", ranks, (3, 3), source=CAPACITY)
    free = subtract(olora.A_t, product(olora.U, transpose(olora.U), olora.A_t))
    yield equal("overlap of the orthogonal part", paper_overlap(olora.U, free), 0.0, source=CAPACITY)
    change = max_abs(matmul(free, olora.X[:1]))
    yield above("an orthogonal update still changes outputs", change, 0.5, source=CAPACITY)


def selector_checks(am: AmLora) -> Iterator[Check]:
    """Stacked logits, branch softmax, a zero branch with mass, and drift from a rater alone."""
    require_shape("am.X", am.X, (2, 2))
    require_shape("am.raters", am.raters, (len(am.deltas) + 1, 2))
    S, g = branch_logits(am, am.raters), branch_gates(am, am.raters)
    yield equal("branch logits", S, ((0.0, 1.0, 0.0, 1.0), (0.0, 0.0, 1.0, 0.0)), source=SELECTOR)
    yield close("branch gates", g, BRANCH_GATES, source=SELECTOR, digits=5)
    sums = tuple(math.fsum(row) for row in g)
    yield below("branch gates sum to one", max(abs(x - 1.0) for x in sums), 1e-15, source=SELECTOR)
    yield close("smallest gate", min(map(min, g)), 0.13447, source=SELECTOR, digits=5)
    yield equal("gates of exactly zero", sum(row.count(0.0) for row in g), 0, source=SPARSITY)
    output = selected(am, am.raters)
    yield close("selector output", output, SELECTOR_OUTPUT, source=SELECTOR, digits=9)
    yield equal("raters", am.raters, ((0.5, -0.25), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)), source=SELECTOR)
    penalty = am.penalty * entry_l1(am.raters)
    yield close("rater penalty", penalty, 0.475, source=SPARSITY, digits=12)
    require_length("am.changed_rater", am.changed_rater, 2)
    changed = (am.raters[0], am.changed_rater, *am.raters[2:])
    yield equal("task-1 rater before and after", changed[1] + am.raters[1], (2.0, 0.0, 1.0, 0.0), source=SPARSITY)
    drift = distance(selected(am, changed), output)
    yield close("drift from an old rater alone", drift, 0.17426, source=SPARSITY, digits=5)
    yield from growth_checks(am)


def growth_checks(am: AmLora) -> Iterator[Check]:
    """Stored, frozen and trainable state of the toy layer, and what a forward materialises."""
    tasks, (d_out, d_in) = len(am.deltas), shape(am.W0)
    factors = tasks * am.rank * (d_in + d_out)
    raters = len(am.raters) * len(am.raters[0])
    yield equal(
        "adapter, rater and continual parameters", (factors, raters, factors + raters), (12, 8, 20), source=GROWTH
    )
    frozen = factors * (tasks - 1) // tasks
    yield equal("frozen and trainable at task 3", (frozen, factors - frozen + raters), (8, 12), source=GROWTH)
    branches = sum(1 for F in branch_features(am) if max_abs(F) > 0.0)
    yield equal("branches and logits a row", (branches, len(branch_logits(am, am.raters)[0])), (3, 4), source=GROWTH)
    ranks = tuple(rank(delta) for delta in am.deltas)
    yield equal("ranks of the task updates", ranks, (am.rank,) * tasks, source=GROWTH)


def evaluate(fixture: ContinualFixture) -> Iterator[Check]:
    """Every check of R 0x06."""
    yield from history_checks(fixture.history, fixture.releases)
    yield from paper_checks(fixture.olora)
    yield from code_checks(fixture.olora)
    yield from cat_checks(fixture.cat)
    yield from capacity_checks(fixture.capacity, fixture.olora)
    yield from selector_checks(fixture.am)
    yield from evaluation_checks(fixture.evaluation)


BRANCH_GATES: Matrix = ((0.13447, 0.36553, 0.13447, 0.36553), (0.17488, 0.17488, 0.47537, 0.17488))
SELECTOR_OUTPUT: Matrix = ((1.048293934, 0.432764645), (-0.25, 1.225366886))
ORACLE = Oracle(
    name="continual_state",
    document="R",
    sections=("0x06A", "0x06B", "0x06C", "0x06D", "0x06E", "0x06F", "0x06G", "0x06H", "0x06I", "0x06J", "0x06K"),
    module=__name__,
    fixture=ContinualFixture,
    evaluate=evaluate,
    proves=(
        "the paper's squared overlap and the code's entrywise overlap with their gradients, and the zero-B schedule",
        "cumulative concatenation under one scale and under two; the orthogonal capacity of the ambient dimension",
        "the attentional selector, its dense gates and rater drift; ACC, BWT, FWT and forgetting; order as identity",
    ),
    does_not_prove=(
        "that orthogonal factors keep old outputs, or that any method avoids forgetting",
        "sparse execution of small gates, or a continual benchmark",
    ),
    own=("olora.X", "olora.G", "olora.B_open", "olora.lambda1", "olora.lambda2", "cat", "am", "history", "releases"),
    document_mutations=204,
)
