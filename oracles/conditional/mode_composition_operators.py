"""Staged and integrated composition of depth and expert routing, forward and backward (C 0x06C, 0x06D).

Shapes, one sequence: X, G, Y [S, d]; w_depth [d]; W_Q, W_K, W_V, W_O [d, d]; R_E [d, E]; R_I [d, E + 1];
expert e: W_1 [d, d_ff], W_2 [d_ff, d], delta(u) = tanh(u W_1) W_2. Norm is the identity here. Rows, experts and
paths are counted from 0; path id E is the no-op.
"""

import math
from typing import Literal, NamedTuple

from oracles.conditional.attention import attend, row_times, scaled, stable_top, weighted_sum
from oracles.differences import Point
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    dot,
    matmul,
    outer,
    shape,
    softmax,
    softmax_backward,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector

S, D, E, D_FF = 4, 2, 2, 3
Gates = Literal["full_softmax", "selected_softmax"]


class Attention(Fixture):
    """Single-head projections, ours."""

    W_Q: FixtureMatrix
    W_K: FixtureMatrix
    W_V: FixtureMatrix
    W_O: FixtureMatrix


class Expert(Fixture):
    """One expert MLP, ours."""

    W_1: FixtureMatrix
    W_2: FixtureMatrix


class ModeFixture(Fixture):
    """The four-token dimensions of C 0x06J; the tensors are ours."""

    X: FixtureMatrix
    G: FixtureMatrix
    positions: tuple[int, int, int, int]
    depth_capacity: int
    w_depth: FixtureVector
    attention: Attention
    experts: tuple[Expert, Expert]
    R_E: FixtureMatrix
    R_I: FixtureMatrix
    k_experts: int
    gates: Gates
    expert_input: Literal["post_attention", "gathered"]
    expert_helper: Literal["delta", "full_output"]
    depth_gate: Literal["whole_delta", "attention_only"]
    no_op: Literal["zero_delta", "identity_output"]
    load_population: Literal["selected_rows", "all_rows"]
    expert_capacity: int
    activation_bytes: int


class Route(NamedTuple):
    """One row's expert route: probabilities over all paths, selected ids and gates."""

    p: Vector
    ids: tuple[int, ...]
    gates: Vector


class Staged(NamedTuple):
    """The nested path: depth rows, attention delta, expert input, routes, expert delta and output."""

    ids: tuple[int, ...]
    A: Matrix
    U: Matrix
    routes: tuple[Route, ...]
    M: Matrix
    Y: Matrix


class Integrated(NamedTuple):
    """Dense attention, then one path a row."""

    U: Matrix
    routes: tuple[Route, ...]
    Y: Matrix


def parameters(fixture: ModeFixture) -> dict[str, Matrix]:
    """Routers and experts by name."""
    banks = {"w_D": (fixture.w_depth,), "R_E": fixture.R_E, "R_I": fixture.R_I}
    for e, expert in enumerate(fixture.experts):
        banks |= {f"W_1{e}": expert.W_1, f"W_2{e}": expert.W_2}
    return banks


def attention_delta(fixture: ModeFixture, X: Matrix, positions: tuple[int, ...]) -> Matrix:
    """A for the given rows, causal in their semantic positions."""
    a = fixture.attention
    Q, K, V = (matmul(X, W) for W in (a.W_Q, a.W_K, a.W_V))
    visible = tuple(tuple(p <= q for p in positions) for q in positions)
    return matmul(tuple(attend(q, K, V, seen)[1] for q, seen in zip(Q, visible, strict=True)), a.W_O)


def expert_delta(point: Point, e: int, u: Vector) -> Vector:
    """tanh(u W_1) W_2."""
    return row_times(tuple(map(math.tanh, row_times(u, point[f"W_1{e}"]))), point[f"W_2{e}"])


def request(u: Vector, R: Matrix, k: int, gates: Gates) -> Route:
    """Top-k paths; gates from the softmax over all paths, or over the selected ones."""
    z = row_times(u, R)
    p, ids = softmax(z), stable_top(z, k)
    return Route(p, ids, tuple(p[e] for e in ids) if gates == "full_softmax" else softmax(tuple(z[e] for e in ids)))


def staged(fixture: ModeFixture, point: Point, k: int, gates: Gates) -> Staged:
    """Y = X + Scatter(ids, g (A + M)), the expert router on selected post-attention rows."""
    scores = tuple(dot(x, point["w_D"][0]) for x in fixture.X)
    ids = tuple(sorted(stable_top(scores, fixture.depth_capacity), key=lambda i: fixture.positions[i]))
    gathered = tuple(fixture.X[i] for i in ids)
    A = attention_delta(fixture, gathered, tuple(fixture.positions[i] for i in ids))
    U = add(gathered, A) if fixture.expert_input == "post_attention" else gathered
    routes = tuple(request(u, point["R_E"], k, gates) for u in U)
    M = tuple(
        weighted_sum(one.gates, tuple(expert_delta(point, e, u) for e in one.ids))
        for u, one in zip(U, routes, strict=True)
    )
    if fixture.expert_helper == "full_output":
        M = add(U, M)
    rows = list(fixture.X)
    for u, i in enumerate(ids):
        inside = scaled(scores[i], A[u])
        expert = scaled(scores[i], M[u]) if fixture.depth_gate == "whole_delta" else M[u]
        rows[i] = add((rows[i],), (inside,), (expert,))[0]
    return Staged(ids, A, U, routes, M, tuple(rows))


def integrated(fixture: ModeFixture, point: Point) -> Integrated:
    """Y = U + a Expert_p(U) with top-1 over E experts and one no-op; the no-op returns a zero delta."""
    U = add(fixture.X, attention_delta(fixture, fixture.X, fixture.positions))
    routes = tuple(request(u, point["R_I"], 1, "full_softmax") for u in U)
    rows = tuple(
        no_op_output(fixture, u)
        if one.ids[0] == E
        else add((u,), (scaled(one.gates[0], expert_delta(point, one.ids[0], u)),))[0]
        for u, one in zip(U, routes, strict=True)
    )
    return Integrated(U, routes, rows)


def no_op_output(fixture: ModeFixture, u: Vector) -> Vector:
    """u + 0 under the delta interface; a full-output no-op there gives u + u."""
    return u if fixture.no_op == "zero_delta" else add((u,), (u,))[0]


def expert_backward(point: Point, grads: dict[str, Matrix], u: Vector, one: Route, upstream: Vector) -> Vector:
    """Adds the expert gradients of one row and returns dL/d gate for its selected real paths (0 for a no-op)."""
    credit: list[float] = []
    for gate, e in zip(one.gates, one.ids, strict=True):
        if e == E:
            credit.append(0.0)
            continue
        h = tuple(map(math.tanh, row_times(u, point[f"W_1{e}"])))
        credit.append(dot(upstream, expert_delta(point, e, u)))
        back = scaled(gate, upstream)
        inner_back = row_times(back, transpose(point[f"W_2{e}"]))
        grads[f"W_2{e}"] = add(grads[f"W_2{e}"], outer(h, back))
        pre = tuple(g * (1.0 - x * x) for g, x in zip(inner_back, h, strict=True))
        grads[f"W_1{e}"] = add(grads[f"W_1{e}"], outer(u, pre))
    return tuple(credit)


def route_backward(one: Route, credit: Vector, gates: Gates) -> Vector:
    """dL/dz over all paths: through the full softmax, or through the softmax of the selected logits."""
    local = credit if gates == "full_softmax" else softmax_backward(one.gates, credit)
    chosen = dict(zip(one.ids, local, strict=True))
    spread = tuple(chosen.get(e, 0.0) for e in range(len(one.p)))
    return softmax_backward(one.p, spread) if gates == "full_softmax" else spread


def staged_backward(fixture: ModeFixture, run: Staged, gates: Gates) -> dict[str, Matrix]:
    """Gradients of <G, Y> in w_D, R_E and the experts, both memberships held."""
    at = parameters(fixture)
    grads = {name: zeros(*shape(value)) for name, value in at.items() if name != "R_I"}
    for u, i in enumerate(run.ids):
        whole = add((run.A[u],), (run.M[u],))[0]
        grads["w_D"] = add(grads["w_D"], (scaled(dot(fixture.G[i], whole), fixture.X[i]),))
        upstream = scaled(dot(fixture.X[i], fixture.w_depth), fixture.G[i])
        credit = expert_backward(at, grads, run.U[u], run.routes[u], upstream)
        grads["R_E"] = add(grads["R_E"], outer(run.U[u], route_backward(run.routes[u], credit, gates)))
    return grads


def integrated_backward(fixture: ModeFixture, run: Integrated) -> tuple[dict[str, Matrix], Matrix]:
    """Gradients of <G, Y> in R_I and the experts, and dL/dz row by row."""
    at = parameters(fixture)
    grads = {name: zeros(*shape(value)) for name, value in at.items() if name not in ("w_D", "R_E")}
    logit_rows: list[Vector] = []
    for u, one, g in zip(run.U, run.routes, fixture.G, strict=True):
        z_bar = route_backward(one, expert_backward(at, grads, u, one, g), "full_softmax")
        grads["R_I"] = add(grads["R_I"], outer(u, z_bar))
        logit_rows.append(z_bar)
    return grads, tuple(logit_rows)
