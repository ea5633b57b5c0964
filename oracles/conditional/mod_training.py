"""Mixture-of-Depths training: each sequence sends exactly C token identities through a block (C 0x04).

Shapes: X, Y, G [B, S, d]; w [d]; scores, positions, valid [B, S]; selected ids [B, C]; W_Q, W_K, W_V, W_O [d, d];
W_1 [d, d_ff]; W_2 [d_ff, d]; F [B, C, d]. The block is causal attention in H heads, then a tanh MLP; it returns its
delta alone. Rows are counted from 0.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from oracles.checks import Check, close, equal, gradient
from oracles.conditional.attention import attend, scaled, sigmoid, stable_top
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    dot,
    elementwise,
    inner,
    matmul,
    require_length,
    require_shape,
    shape,
    softmax,
    subtract,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle

ROUTER, TRACE, SCATTER, BACKWARD = "C 0x04C", "C 0x04D", "C 0x04E", "C 0x04F"
MACS, LEDGER, STATIC, ALTERNATIVES = "C 0x04G", "C 0x04H", "C 0x04I", "C 0x04J"

NEVER = -math.inf


class Block(Fixture):
    """The selected block: projections, heads and MLP, ours."""

    W_Q: FixtureMatrix
    W_K: FixtureMatrix
    W_V: FixtureMatrix
    W_O: FixtureMatrix
    heads: int
    W_1: FixtureMatrix
    W_2: FixtureMatrix


class Policy(Fixture):
    """The choices that keep every shape and change the operator (C 0x04J, C 0x04K)."""

    domain: Literal["valid_rows", "all_rows"]
    tie_break: Literal["lower_row_first", "higher_row_first"]
    execution: Literal["by_position", "by_score"]
    gate: Literal["raw_score", "selected_softmax", "sigmoid"]
    helper: Literal["delta", "full_output"]
    skipped: Literal["identity", "times_score"]


class ModTrainingFixture(Fixture):
    """Scores, padding, positions and dimensions as in C 0x04D; X and w are ours and give those scores."""

    C: int
    X: tuple[FixtureMatrix, FixtureMatrix]
    valid: tuple[tuple[bool, ...], tuple[bool, ...]]
    positions: tuple[tuple[int, ...], tuple[int, ...]]
    w: FixtureVector
    block: Block
    G: tuple[FixtureMatrix, FixtureMatrix]
    policy: Policy
    tied_scores: FixtureVector
    activation_bytes: int
    index_bytes: int


class Selection(NamedTuple):
    """One sequence: raw scores, ids in score order and in execution order."""

    scores: Vector
    by_score: tuple[int, ...]
    ids: tuple[int, ...]


def select(fixture: ModTrainingFixture, b: int, X: Matrix, w: Vector) -> Selection:
    """StableTopC over the valid rows of one sequence, then the execution permutation."""
    scores = tuple(dot(w, x) for x in X)
    masked = tuple(
        r if v or fixture.policy.domain == "all_rows" else NEVER for r, v in zip(scores, fixture.valid[b], strict=True)
    )
    if sum(r > NEVER for r in masked) < fixture.C:
        raise FixtureRefusedError("valid", fixture.valid[b], f"at least C = {fixture.C} valid rows")
    by_score = stable_top(masked, fixture.C, later_first=fixture.policy.tie_break == "higher_row_first")
    in_time = tuple(sorted(by_score, key=lambda i: fixture.positions[b][i]))
    return Selection(scores, by_score, in_time if fixture.policy.execution == "by_position" else by_score)


def causal(positions: tuple[int, ...]) -> tuple[tuple[bool, ...], ...]:
    """Row u may read row v when p_v <= p_u: a relation of positions, not of gather order."""
    return tuple(tuple(p <= q for p in positions) for q in positions)


def block_delta(block: Block, X: Matrix, visible: tuple[tuple[bool, ...], ...]) -> Matrix:
    """A + MLP(X + A) for the gathered rows: no residual of X inside."""
    Q, K, V = (matmul(X, W) for W in (block.W_Q, block.W_K, block.W_V))
    d_h = shape(Q)[1] // block.heads
    parts: list[Matrix] = []
    for h in range(block.heads):
        q, k, v = (tuple(row[h * d_h : (h + 1) * d_h] for row in M) for M in (Q, K, V))
        parts.append(tuple(attend(row, k, v, seen)[1] for row, seen in zip(q, visible, strict=True)))
    concatenated = tuple(tuple(x for part in parts for x in part[u]) for u in range(len(X)))
    A = matmul(concatenated, block.W_O)
    return add(A, matmul(elementwise(math.tanh, matmul(add(X, A), block.W_1)), block.W_2))


def gates(fixture: ModTrainingFixture, scores: Vector) -> Vector:
    """The raw selected scalars; the two others are traps."""
    if fixture.policy.gate == "selected_softmax":
        return softmax(scores)
    return tuple(map(sigmoid, scores)) if fixture.policy.gate == "sigmoid" else scores


def selected_delta(fixture: ModTrainingFixture, b: int, X: Matrix, ids: tuple[int, ...]) -> Matrix:
    """F of the gathered rows of one sequence."""
    gathered = tuple(X[i] for i in ids)
    F = block_delta(fixture.block, gathered, causal(tuple(fixture.positions[b][i] for i in ids)))
    return F if fixture.policy.helper == "delta" else add(gathered, F)


def scatter(fixture: ModTrainingFixture, X: Matrix, chosen: Selection, F: Matrix, w: Vector) -> Matrix:
    """Y = X + ScatterAdd(ids, g F); a skipped row stays as it is."""
    g = gates(fixture, tuple(dot(w, X[i]) for i in chosen.ids))
    weighted = {i: scaled(gate, f) for i, gate, f in zip(chosen.ids, g, F, strict=True)}
    kept = fixture.policy.skipped == "identity"
    return tuple(
        add((x,), (weighted[i],))[0] if i in weighted else x if kept else scaled(chosen.scores[i], x)
        for i, x in enumerate(X)
    )


def forward(fixture: ModTrainingFixture, b: int, X: Matrix, w: Vector) -> Matrix:
    """One sequence through the routed layer."""
    chosen = select(fixture, b, X, w)
    return scatter(fixture, X, chosen, selected_delta(fixture, b, X, chosen.ids), w)


def router_gradient(fixture: ModTrainingFixture, chosen: tuple[Selection, ...]) -> tuple[Vector, dict[int, Matrix]]:
    """grad w = sum g_bar x and, sequence by sequence, the identity and router branches of grad X."""
    grad_w: Vector = (0.0,) * len(fixture.w)
    grad_X: dict[int, Matrix] = {}
    for b, one in enumerate(chosen):
        X, G = fixture.X[b], fixture.G[b]
        F = selected_delta(fixture, b, X, one.ids)
        g_bar = {i: dot(G[i], f) for i, f in zip(one.ids, F, strict=True)}
        for i, value in g_bar.items():
            grad_w = add((grad_w,), (scaled(value, X[i]),))[0]
        grad_X[b] = tuple(add((g,), (scaled(g_bar[i], fixture.w),))[0] if i in g_bar else g for i, g in enumerate(G))
    return grad_w, grad_X


def trace_checks(fixture: ModTrainingFixture, chosen: tuple[Selection, ...]) -> Iterator[Check]:
    """Scores, padding, score order, execution order, positions and the route margin."""
    valid = tuple(tuple(i for i, v in enumerate(row) if v) for row in fixture.valid)
    scores = tuple(tuple(one.scores[i] for i in rows) for one, rows in zip(chosen, valid, strict=True))
    yield close("valid scores", scores, SCORES, source=TRACE, digits=2, tolerance=1e-12)
    yield equal("padded row of sequence 1", fixture.X[1][5], (100.0, 100.0, 100.0, 100.0), source=TRACE)
    yield close("score of the padded row", chosen[1].scores[5], 100.0, source=TRACE, digits=2, tolerance=1e-12)
    yield equal("score order", tuple(one.by_score for one in chosen), ((5, 0, 4), (4, 1, 2)), source=TRACE)
    yield equal("execution order", tuple(one.ids for one in chosen), ((0, 4, 5), (1, 2, 4)), source=TRACE)
    picked = tuple(tuple(fixture.positions[b][i] for i in one.ids) for b, one in enumerate(chosen))
    yield equal("selected positions", picked, ((10, 14, 15), (21, 22, 24)), source=TRACE)
    yield equal("padding is never chosen", 5 in chosen[1].ids, False, source=TRACE)
    unmasked = stable_top(chosen[1].scores, fixture.C)
    yield equal("score order when validity is ignored", unmasked, (5, 4, 1), source=TRACE)
    margin = min(
        min(one.scores[i] for i in one.ids) - max(one.scores[i] for i in rows if i not in one.ids)
        for one, rows in zip(chosen, valid, strict=True)
    )
    yield close("smallest route margin", margin, 0.1, source=BACKWARD, digits=1, tolerance=1e-12)
    tied = stable_top(fixture.tied_scores, 2, later_first=fixture.policy.tie_break == "higher_row_first")
    yield equal("ties: lower row first", tied, (2, 0), source=ROUTER)
    yield close("tied scores", fixture.tied_scores, (0.5, 0.5, 0.75), source=ROUTER, digits=3)
    yield equal("all positions", fixture.positions, POSITIONS, source=TRACE)


def mask_checks(fixture: ModTrainingFixture, chosen: tuple[Selection, ...]) -> Iterator[Check]:
    """Causality is a relation of positions; a triangle over score order shows the future."""
    triangle = tuple(tuple(v <= u for v in range(fixture.C)) for u in range(fixture.C))
    picked = tuple(tuple(fixture.positions[b][i] for i in one.ids) for b, one in enumerate(chosen))
    yield equal("chronological rows give a triangle", causal(picked[0]) == triangle, True, source=TRACE)
    by_score = tuple(fixture.positions[0][i] for i in chosen[0].by_score)
    future = sum(seen and by_score[v] > by_score[u] for u, row in enumerate(triangle) for v, seen in enumerate(row))
    yield equal("future reads of a triangle over score order", future, 2, source=TRACE)
    pooled = sorted(
        ((r, b) for b, one in enumerate(chosen) for r, v in zip(one.scores, fixture.valid[b], strict=True) if v)
    )
    taken = tuple(sum(b == owner for _, owner in pooled[-2 * fixture.C :]) for b in (0, 1))
    yield equal("rows a sequence under global top-BC", taken, (3, 3), source=ALTERNATIVES)


def forward_checks(fixture: ModTrainingFixture, chosen: tuple[Selection, ...]) -> Iterator[Check]:
    """The output, exact identity of skipped rows, and the delta-only helper."""
    Y = tuple(forward(fixture, b, X, fixture.w) for b, X in enumerate(fixture.X))
    skipped = tuple(Y[b][i] == X[i] for b, X in enumerate(fixture.X) for i in range(len(X)) if i not in chosen[b].ids)
    yield equal("skipped rows are exact identities", skipped, (True,) * 6, source=SCATTER)
    selected = tuple(tuple(Y[b][i] for i in one.ids) for b, one in enumerate(chosen))
    yield close("selected rows of Y", selected, OUTPUT, source=SCATTER, digits=12)
    X, ids = fixture.X[0], chosen[0].ids
    F = selected_delta(fixture, 0, X, ids)
    gathered = tuple(X[i] for i in ids)
    twice = scatter(fixture, X, chosen[0], add(gathered, F), fixture.w)
    excess = subtract(twice, Y[0])
    expected = tuple(scaled(chosen[0].scores[i], X[i]) if i in ids else (0.0,) * 4 for i in range(6))
    yield close("a residualised helper adds g x once more", distance(excess, expected), 0.0, source=SCATTER, digits=12)


def backward_checks(fixture: ModTrainingFixture, chosen: tuple[Selection, ...]) -> Iterator[Check]:
    """The router learns through the selected gate; membership and skipped scores carry no gradient."""

    def loss(w: Vector) -> float:
        return math.fsum(inner(fixture.G[b], forward(fixture, b, X, w)) for b, X in enumerate(fixture.X))

    yield close("loss <G, Y>", loss(fixture.w), LOSS, source=BACKWARD, digits=12, tolerance=1e-11)
    grad_w, grad_X = router_gradient(fixture, chosen)
    yield close("grad w", grad_w, GRAD_W, source=BACKWARD, digits=12)
    in_w = compare(lambda p: loss(p["w"][0]), {"w": (fixture.w,)}, {"w": (grad_w,)})
    yield gradient("grad w against differences", in_w, 3.2e-9, source=BACKWARD)
    rows = range(len(fixture.X[0]))

    def held(point: Point) -> float:
        one, X = chosen[0], point["X"]
        F = selected_delta(fixture, 0, fixture.X[0], one.ids)
        return inner(fixture.G[0], scatter(fixture, X, one, F, fixture.w))

    in_X = compare(held, {"X": fixture.X[0]}, {"X": grad_X[0]})
    yield gradient("identity and router branches of grad X", in_X, 3.2e-9, source=BACKWARD)
    untouched = tuple(grad_X[0][i] == fixture.G[0][i] for i in rows if i not in chosen[0].ids)
    yield equal("a skipped row keeps its identity gradient alone", untouched, (True,) * 3, source=BACKWARD)


def ledger_checks(fixture: ModTrainingFixture) -> Iterator[Check]:
    """Named MACs, the two ratios and the logical route payload."""
    (S, d), C = shape(fixture.X[0]), fixture.C
    d_ff = shape(fixture.block.W_1)[1]
    dense, routed = (block_macs(rows, d, d_ff) for rows in (S, C))
    for name, one, other in zip(("Q/K/V/O", "QK^T and AV", "MLP"), dense, routed, strict=True):
        yield equal(f"{name} MACs, dense and routed", (one, other), PRINTED_MACS[name], source=LEDGER)
    router, multiplies = 2 * S * d, 2 * C * d
    yield equal("router MACs", router, 48, source=LEDGER)
    yield equal("gate multiplies", multiplies, 24, source=LEDGER)
    totals = (sum(dense), sum(routed))
    yield equal("block MACs, dense and routed", totals, (1920, 816), source=LEDGER)
    yield equal("rho", C / S, 0.5, source=LEDGER)
    yield equal("linear and map ratios", (routed[0] / dense[0], routed[1] / dense[1]), (0.5, 0.25), source=MACS)
    yield equal("block ratio", totals[1] / totals[0], 0.425, source=LEDGER)
    yield equal("ratio with the router", (totals[1] + router) / totals[0], 0.45, source=LEDGER)
    width, index = fixture.activation_bytes, fixture.index_bytes
    moved = (2 * S * width, 2 * C * index, 2 * 2 * C * d * width, 2 * 2 * C * d * width)
    yield equal("payload: scores, ids, gather, scatter", moved, (24, 24, 96, 96), source=LEDGER)
    static = ((2, S), (2, C), (2, C, d), (2, C, C), (2, fixture.block.heads, C, C), (2, S, d))
    yield equal("static shapes", static, ((2, 6), (2, 3), (2, 3, 4), (2, 3, 3), (2, 2, 3, 3), (2, 6, 4)), source=STATIC)


def block_macs(rows: int, d: int, d_ff: int) -> tuple[int, int, int]:
    """Q/K/V/O, both map products and a two-matrix MLP over `rows` rows of each of two sequences."""
    return 4 * 2 * rows * d**2, 2 * 2 * rows**2 * d, 2 * 2 * rows * d * d_ff


def require_shapes(fixture: ModTrainingFixture) -> None:
    """The dimensions of C 0x04H: B 2, S 6, d 4, d_ff 6."""
    for b in (0, 1):
        require_shape(f"X[{b}]", fixture.X[b], (6, 4))
        require_shape(f"G[{b}]", fixture.G[b], (6, 4))
        require_length(f"valid[{b}]", fixture.valid[b], 6)
        require_length(f"positions[{b}]", fixture.positions[b], 6)
    require_length("w", fixture.w, 4)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        require_shape(name, getattr(fixture.block, name), (4, 4))
    require_shape("W_1", fixture.block.W_1, (4, 6))
    require_shape("W_2", fixture.block.W_2, (6, 4))
    if fixture.block.heads != 2:
        raise FixtureRefusedError("block.heads", fixture.block.heads, "2 heads of width 2")


def evaluate(fixture: ModTrainingFixture) -> Iterator[Check]:
    """Every check of C 0x04, in the order of its subsections."""
    require_shapes(fixture)
    chosen = tuple(select(fixture, b, X, fixture.w) for b, X in enumerate(fixture.X))
    yield from trace_checks(fixture, chosen)
    yield from mask_checks(fixture, chosen)
    yield from forward_checks(fixture, chosen)
    yield from backward_checks(fixture, chosen)
    yield from ledger_checks(fixture)


SCORES = ((0.50, -0.30, 0.20, 0.10, 0.30, 0.70), (-0.10, 0.60, 0.40, 0.20, 1.00))
POSITIONS = ((10, 11, 12, 13, 14, 15), (20, 21, 22, 23, 24, 25))
PRINTED_MACS = {"Q/K/V/O": (768, 384), "QK^T and AV": (576, 144), "MLP": (576, 288)}
# Our tensors: results from an independent automatic differentiation in float64.
OUTPUT: tuple[Matrix, Matrix] = (
    (
        (-1.049221196341, -1.131342412406, -0.045022442127, 1.909333442555),
        (0.052536703016, 0.856517515738, -0.896444143904, 0.274020112670),
        (-1.578076340300, -0.478120199711, 0.217704826799, 2.382775492795),
    ),
    (
        (-0.988682570338, 0.456083268492, -1.227915733862, 2.130981176114),
        (-0.928508297710, -1.010481385559, -0.818988346534, 1.989949762850),
        (-0.512854818341, -1.061958240435, -1.168575482455, 2.461409026343),
    ),
)
LOSS = -3.031993962215
GRAD_W: Vector = (1.096991417344, -2.694601222348, -0.286231774751, -5.067794617976)

ORACLE = Oracle(
    name="mod_training",
    document="C",
    sections=("0x04C", "0x04D", "0x04E", "0x04F", "0x04G", "0x04H", "0x04I", "0x04J"),
    module=__name__,
    fixture=ModTrainingFixture,
    evaluate=evaluate,
    proves=(
        "per-sequence stable top-C over valid rows, executed in the order of original positions",
        "delta-only block, raw gate, exact identity of skipped rows, and the router gradient",
        "named MACs, their linear and quadratic ratios, and the logical route payload",
    ),
    does_not_prove=(
        "gradients of the block's own weights, which are the dense ones on the gathered rows",
        "that the membership can be used while decoding, or any latency",
    ),
    own=("X", "w", "block", "G", "tied_scores"),
    document_mutations=22,
)
