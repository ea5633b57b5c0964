"""MoLE: a gate over trained candidates, its balance, its temperature, and what freezing leaves connected (R 0x03H).

Shapes: gate logits [M, J] for M blocks; candidate outputs E [J, d]; the gate reads their normalised concatenation.
"""

import math
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Annotated

from pydantic import Field

from oracles.checks import Check, above, close, equal, gradient
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
    norm,
    outer,
    require_length,
    require_shape,
    scale,
    scale_rows,
    softmax,
    softmax_backward,
    transpose,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector

MOLE, FROZEN, WITNESS = "R 0x03H", "R 0x03I", "R 0x03J"

Positive = Annotated[float, Field(gt=0.0)]


class Mole(Fixture):
    """Gate logits of M blocks, temperature, balance weight, and a linearised domain credit."""

    logits: FixtureMatrix
    tau: Positive
    alpha: float
    credit: FixtureMatrix


class PaperGate(Fixture):
    """One block of the paper's gate: candidates M_i x feed the gate V Norm(concat); O = F x + sum_i g_i M_i x."""

    x: FixtureVector
    candidates: tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]
    V: FixtureMatrix
    F: FixtureMatrix
    w: FixtureVector
    tau: Positive
    alpha: float


def mole_gates(mole: Mole, point: Point) -> Matrix:
    """g = softmax(logits / tau)."""
    tau = point["tau"][0][0] if "tau" in point else mole.tau
    return tuple(softmax(tuple(x / tau for x in row)) for row in point.get("logits", mole.logits))


def gate_balance(g: Matrix) -> float:
    """-sum_i log q_i with q_i the mean gate over the blocks."""
    return -math.fsum(math.log(fmean(column)) for column in transpose(g))


def gate_balance_gradient(g: Matrix) -> Matrix:
    """-1 / (M q_i) for every block."""
    row = tuple(-1.0 / (len(g) * fmean(column)) for column in transpose(g))
    return (row,) * len(g)


def mole_loss(mole: Mole, alpha: float, point: Point) -> float:
    """<credit, g> + alpha balance."""
    g = mole_gates(mole, point)
    return inner(mole.credit, g) + alpha * gate_balance(g)


def mole_gradient(mole: Mole, alpha: float) -> dict[str, Matrix]:
    """d/d logits and d/d tau through a = logits / tau."""
    g = mole_gates(mole, {})
    u = add(mole.credit, scale(alpha, gate_balance_gradient(g)))
    da = tuple(softmax_backward(row, credit) for row, credit in zip(g, u, strict=True))
    return {"logits": scale(1.0 / mole.tau, da), "tau": ((-inner(da, mole.logits) / mole.tau**2,),)}


def candidate_outputs(gate: PaperGate, x: Vector) -> Matrix:
    """E_i(x) = M_i x, one row a candidate."""
    return tuple(apply(M, x) for M in gate.candidates)


def gate_weights(E: Matrix, point: Point) -> tuple[Vector, Vector, Vector]:
    """(n, eps, g): normalised concatenation, logits V n, and softmax(eps / tau)."""
    flat = tuple(x for row in E for x in row)
    if norm(flat) == 0.0:
        raise FixtureRefusedError("paper_gate", "candidates without output", "a concatenation that can be normalised")
    n = tuple(x / norm(flat) for x in flat)
    eps = apply(point["V"], n)
    return n, eps, softmax(tuple(x / point["tau"][0][0] for x in eps))


def gate_start(gate: PaperGate) -> dict[str, Matrix]:
    """x, V and tau: an upstream activation and the two trainable objects."""
    return {"x": (gate.x,), "V": gate.V, "tau": ((gate.tau,),)}


def gate_loss(gate: PaperGate, held: Matrix | None, point: Point) -> float:
    """<w, O> + alpha balance; `held` detaches the candidates by keeping their outputs."""
    x = point["x"][0]
    E = candidate_outputs(gate, x) if held is None else held
    _, _, g = gate_weights(E, point)
    return dot(gate.w, apply(gate.F, x)) + dot(g, apply(E, gate.w)) + gate.alpha * gate_balance((g,))


def gate_backward(gate: PaperGate) -> dict[str, Matrix]:
    """Gradients of x, V and tau; x is reached through the base and through every frozen candidate."""
    E = candidate_outputs(gate, gate.x)
    n, eps, g = gate_weights(E, gate_start(gate))
    u = tuple(c - gate.alpha / x for c, x in zip(apply(E, gate.w), g, strict=True))
    da = softmax_backward(g, u)
    d_eps = tuple(x / gate.tau for x in da)
    dn = apply(transpose(gate.V), d_eps)
    length, radial = norm(tuple(x for row in E for x in row)), dot(n, dn)
    flat = tuple((d - y * radial) / length for d, y in zip(dn, n, strict=True))
    width = len(gate.w)
    dE = add(scale_rows(g, (gate.w,) * len(g)), tuple(flat[i * width : (i + 1) * width] for i in range(len(g))))
    through = (apply(transpose(M), d) for M, d in zip(gate.candidates, dE, strict=True))
    dx = add((apply(transpose(gate.F), gate.w),), *((row,) for row in through))
    return {"x": dx, "V": outer(d_eps, n), "tau": ((-dot(da, eps) / gate.tau**2,),)}


def mole_checks(mole: Mole) -> Iterator[Check]:
    """Balance and temperature gradients; a detached statistic has a value and no gradient edge."""
    require_shape("mole.credit", mole.credit, (3, 3))
    require_shape("mole.logits", mole.logits, (3, 3))
    g = mole_gates(mole, {})
    q = tuple(fmean(column) for column in transpose(g))
    yield close("mean gates q", q, (0.326606, 0.340376, 0.333018), source=WITNESS, digits=6)
    yield close("balance term", gate_balance(g), 3.296264, source=WITNESS, digits=6)
    total = mole_loss(mole, mole.alpha, {"logits": mole.logits})
    yield close("credit plus balance", total, 0.557122559, source=MOLE, digits=9)
    direct = compare(lambda at: gate_balance(at["g"]), {"g": g}, {"g": gate_balance_gradient(g)})
    yield gradient("balance against gates", direct, 1e-9, source=MOLE)
    found = mole_gradient(mole, mole.alpha)
    loss = partial(mole_loss, mole, mole.alpha)
    in_logits = compare(loss, {"logits": mole.logits}, {"logits": found["logits"]})
    yield gradient("MoLE credit plus balance", in_logits, 1.30e-10, source=WITNESS)
    in_tau = compare(loss, {"tau": ((mole.tau,),)}, {"tau": found["tau"]})
    yield gradient("MoLE temperature", in_tau, 1e-9, source=MOLE)
    recorded = mole.alpha * gate_balance(g)
    detached = compare(
        lambda at: mole_loss(mole, 0.0, at) + recorded,
        {"logits": mole.logits},
        {"logits": mole_gradient(mole, 0.0)["logits"]},
    )
    yield gradient("a detached statistic moves no logit", detached, 1e-9, source=MOLE)
    edge = distance(found["logits"], mole_gradient(mole, 0.0)["logits"])
    yield above("the live balance moves logits", edge, 1e-3, source=MOLE)


def paper_gate_checks(gate: PaperGate) -> Iterator[Check]:
    """The gate consumes every candidate, and frozen candidates still carry gradients to x."""
    require_length("paper_gate.x", gate.x, 2)
    require_length("paper_gate.w", gate.w, 2)
    require_shape("paper_gate.V", gate.V, (3, 6))
    for M in (*gate.candidates, gate.F):
        require_shape("paper_gate", M, (2, 2))
    point = gate_start(gate)
    E = candidate_outputs(gate, gate.x)
    yield close("gate loss", gate_loss(gate, None, point), 0.408646653, source=MOLE, digits=9)
    _, _, g = gate_weights(E, point)
    reads = 0
    for i in range(len(E)):
        other = tuple(tuple(x + 0.25 * (k == i) for x in row) for k, row in enumerate(E))
        reads += distance((gate_weights(other, point)[2],), (g,)) > 1e-3
    yield equal("candidates the gate reads", reads, 3, source=MOLE)
    found = gate_backward(gate)
    yield gradient("paper gate", compare(partial(gate_loss, gate, None), point, found), 1e-9, source=MOLE)
    held = compare(partial(gate_loss, gate, E), {**point}, {**found, "x": (apply(transpose(gate.F), gate.w),)})
    yield gradient("detached candidates leave x only its base path", held, 1e-9, source=FROZEN)
    lost = distance(found["x"], (apply(transpose(gate.F), gate.w),))
    yield above("frozen candidates carry gradient to x", lost, 0.01, source=FROZEN)
