"""rsLoRA: the branch scale is part of the learning trajectory (V 0x04).

Shapes: A_0 [r, d_in]; B [d_out, r]; x [d_in]; v = dL/df [d_out]; f(x) = gamma_r B A x with gamma_r = alpha r^-p.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.checks import Check, below, close, equal, gradient
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    apply,
    distance,
    identity,
    matmul,
    require_length,
    require_shape,
    scale,
    subtract,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.variants.lora import backward, effective, held_against_differences

START, LAW, EXPONENT, SWEEP = "V 0x04C", "V 0x04D", "V 0x04E", "V 0x04F"
COST, PATTERN, CONVERSION = "V 0x04A", "V 0x04I", "V 0x04J"

Rule = Literal["lora", "rslora"]
Rank = Annotated[int, Field(gt=0)]


class Sweep(Fixture):
    """Four ranks under four exponents; A_0 repeats `rows`, so A_0^T A_0 = (r/2) I without sampling noise."""

    rows: FixtureMatrix
    ranks: tuple[Rank, ...]
    exponents: FixtureVector
    alpha: float
    eta: float
    x: FixtureVector
    v: FixtureVector


class RankPattern(Fixture):
    """Ranks that differ from the default."""

    q_proj: Rank
    o_proj: Rank


class AlphaPattern(Fixture):
    """Alphas that differ from the default."""

    q_proj: float


class Patterned(Fixture):
    """One adapter whose modules differ in rank and alpha, and the scale each operation uses."""

    r: Rank
    alpha: float
    rank_pattern: RankPattern
    alpha_pattern: AlphaPattern
    rank_source: Literal["module", "global"]
    hotswap_scale: Literal["recomputed", "stale"]
    merge_scale: Literal["stored", "none"]


class Conversion(Fixture):
    """Rank and alpha before an initialized adapter is converted to 2r."""

    r: Rank
    alpha: float


class RsloraFixture(Fixture):
    """The sweep of V 0x04F, the modules of V 0x04I and the conversion of V 0x04J."""

    sweep: Sweep
    patterned: Patterned
    conversion: Conversion


class Module(NamedTuple):
    """Effective rank and alpha of one module."""

    name: str
    rank: int
    alpha: float


class Step(NamedTuple):
    """The first SGD step from B_0 = 0."""

    output: Vector
    gradients: dict[str, Matrix]
    delta: Matrix
    input_gradient: Vector


def gamma(alpha: float, r: int, p: float) -> float:
    """alpha r^-p."""
    return float(alpha * r**-p)


def scaling(alpha: float, r: int, rule: Rule) -> float:
    """alpha / r or alpha / sqrt r."""
    return alpha / (r if rule == "lora" else math.sqrt(r))


def initial_factor(sweep: Sweep, r: int) -> Matrix:
    """A_0: the rows repeated up to rank r."""
    if r % len(sweep.rows):
        raise FixtureRefusedError("rank", r, f"a multiple of {len(sweep.rows)}")
    return sweep.rows * (r // len(sweep.rows))


def first_step(sweep: Sweep, r: int, p: float) -> Step:
    """Output and gradients at B_0 = 0, then gamma B_1 A_0 and (gamma B_1 A_0)^T v after one step."""
    g, A, B0 = gamma(sweep.alpha, r, p), initial_factor(sweep, r), zeros(len(sweep.v), r)
    grads = backward(zeros(len(sweep.v), len(sweep.x)), A, B0, g, (sweep.x,), (sweep.v,))
    B1 = subtract(B0, scale(sweep.eta, grads["B"]))
    delta = scale(g, matmul(B1, A))
    start = apply(scale(g, matmul(B0, A)), sweep.x)
    return Step(start, grads, delta, apply(transpose(delta), sweep.v))


def modules(p: Patterned) -> tuple[Module, ...]:
    """Rank and alpha of every module, patterns before defaults."""
    ranks = {"q_proj": p.rank_pattern.q_proj, "o_proj": p.rank_pattern.o_proj}
    alphas = {"q_proj": p.alpha_pattern.q_proj}
    rank = p.r if p.rank_source == "global" else None
    names = ("q_proj", "v_proj", "o_proj")
    return tuple(Module(n, rank or ranks.get(n, p.r), alphas.get(n, p.alpha)) for n in names)


def convert(r: int, alpha: float, rule: Rule, patterns: tuple[Module, ...] = ()) -> tuple[Module, ...]:
    """Rank 2r with the alpha that keeps the scale; patterns under the rank-stabilised rule are refused."""
    if rule == "rslora" and patterns:
        names = [module.name for module in patterns]
        raise FixtureRefusedError("conversion", names, "no rank or alpha pattern under alpha / sqrt r")
    factor = 2.0 if rule == "lora" else math.sqrt(2.0)
    return tuple(Module(n, 2 * k, factor * a) for n, k, a in (Module("default", r, alpha), *patterns))


def refuses_patterns(rule: Rule, patterns: tuple[Module, ...]) -> bool:
    """Whether this rule refuses to convert these patterns."""
    try:
        convert(1, 1.0, rule, patterns)
    except FixtureRefusedError:
        return True
    return False


def start_checks(sweep: Sweep) -> Iterator[Check]:
    """Zero initial output at every rank; B alone receives the first gradient."""
    steps = tuple(first_step(sweep, r, p) for r in sweep.ranks for p in sweep.exponents)
    yield equal("initial output", {s.output for s in steps} == {(0.0, 0.0)}, True, source=START)
    still = all(x == 0.0 for s in steps for row in s.gradients["A"] for x in row)
    yield equal("first grad A is zero", still, True, source=START)
    yield close(
        "first grad B at rank 4, p = 1/2", first_step(sweep, 4, 0.5).gradients["B"], GRAD_B, source=START, digits=9
    )
    A = initial_factor(sweep, 4)
    B, W = scale(0.5, transpose(A)), zeros(len(sweep.v), len(sweep.x))
    held = held_against_differences(W, A, B, gamma(sweep.alpha, 4, 0.5), (sweep.x,), (sweep.v,))
    yield gradient("gradients against differences", held, 1e-9, source=START)


def law_checks(sweep: Sweep) -> Iterator[Check]:
    """A_0^T A_0 = (r/2) I, and delta and input gradient carry gamma^2 r."""
    grams = tuple(matmul(transpose(A), A) for A in (initial_factor(sweep, r) for r in sweep.ranks))
    halves = tuple(scale(r / 2.0, identity(len(sweep.x))) for r in sweep.ranks)
    yield equal("A0^T A0 = (r/2) I", grams, halves, source=SWEEP)
    unit = first_step(sweep, 4, 0.5)
    yield close("rank-stable delta", unit.delta, DELTA, source=SWEEP, digits=9)
    yield close("rank-stable input gradient", unit.input_gradient, INPUT_GRADIENT, source=SWEEP, digits=9)
    yield close("rank-stable probe output", apply(unit.delta, sweep.x), (-0.15625, 0.3125), source=SWEEP, digits=9)
    errors = []
    for r in sweep.ranks:
        for p in sweep.exponents:
            factor, step = gamma(sweep.alpha, r, p) ** 2 * r, first_step(sweep, r, p)
            errors.append(distance(step.delta, scale(factor, DELTA)))
            errors.append(distance((step.input_gradient,), scale(factor, (INPUT_GRADIENT,))))
    yield below("delta and input gradient carry gamma^2 r", max(errors), 1e-14, source=LAW)


def table_checks(sweep: Sweep) -> Iterator[Check]:
    """The rank table, one column a rule, and the ratio of its ends."""
    yield equal("ranks", sweep.ranks, (4, 16, 64, 256), source=SWEEP)
    yield equal("exponents", sweep.exponents, (1.0, 0.5, 0.25, 2.0), source=EXPONENT)
    for p, (name, digits, printed, ratio) in zip(sweep.exponents, TABLE, strict=True):
        column = tuple(gamma(sweep.alpha, r, p) ** 2 * r for r in sweep.ranks)
        yield close(f"gamma^2 r, {name}", column, printed, source=SWEEP, digits=digits)
        yield close(f"rank 256 over rank 4, {name}", column[-1] / column[0], ratio, source=SWEEP, digits=12)
    sizes = tuple(r * (len(sweep.x) + len(sweep.v)) for r in sweep.ranks)
    yield equal("factor scalars grow with rank", sizes, (16, 64, 256, 1024), source=COST)


def pattern_checks(p: Patterned) -> Iterator[Check]:
    """Scales by effective rank, under both rules, and through hotswap and merge."""
    found = modules(p)
    yield equal("effective rank and alpha", found, MODULES, source=PATTERN)
    lora = tuple(scaling(m.alpha, m.rank, "lora") for m in found)
    stable = tuple(scaling(m.alpha, m.rank, "rslora") for m in found)
    yield equal("LoRA scales", lora, (0.25, 2.0, 8.0), source=PATTERN)
    yield equal("rsLoRA scales", stable, (2.0, 8.0, 16.0), source=PATTERN)
    swapped = stable[2] if p.hotswap_scale == "recomputed" else stable[1]
    yield equal("scale after a hotswap from v_proj's shape to o_proj's", swapped, 16.0, source=PATTERN)
    W, A, B = identity(2), ((1.0, 2.0),), ((0.5,), (-1.0,))
    merged = effective(W, A, B, stable[0] if p.merge_scale == "stored" else 1.0)
    yield equal("merge with the stored scale", merged, ((2.0, 2.0), (-2.0, -3.0)), source=PATTERN)


def conversion_checks(fixture: RsloraFixture) -> Iterator[Check]:
    """2 alpha against sqrt 2 alpha at rank 2r, and the patterned cases."""
    c, patterns = fixture.conversion, modules(fixture.patterned)
    classic, stable = convert(c.r, c.alpha, "lora")[0], convert(c.r, c.alpha, "rslora")[0]
    yield equal("classic conversion", (classic.rank, classic.alpha), (4, 8.0), source=CONVERSION)
    yield equal("rank-stable converted rank", stable.rank, 4, source=CONVERSION)
    yield close("rank-stable converted alpha", stable.alpha, 5.656854, source=CONVERSION, digits=6)
    kept = scaling(stable.alpha, stable.rank, "rslora") - scaling(c.alpha, c.r, "rslora")
    yield below("rank-stable scale is kept", abs(kept), 1e-14, source=CONVERSION)
    doubled = scaling(2.0 * c.alpha, 2 * c.r, "rslora") / scaling(c.alpha, c.r, "rslora")
    yield close("doubling alpha under sqrt r multiplies the scale", doubled, 1.414214, source=CONVERSION, digits=6)
    refused = (refuses_patterns("lora", patterns), refuses_patterns("rslora", patterns))
    yield equal("patterns refused, classic and rank-stable", refused, (False, True), source=CONVERSION)
    converted = convert(c.r, c.alpha, "lora", patterns)
    yield equal("classic conversion doubles patterns", converted, DOUBLED, source=CONVERSION)


def evaluate(fixture: RsloraFixture) -> Iterator[Check]:
    """Every check of V 0x04, in the order of its subsections."""
    sweep = fixture.sweep
    require_length("x", sweep.x, 2)
    require_length("v", sweep.v, 2)
    require_shape("rows", sweep.rows, (4, 2))
    require_length("exponents", sweep.exponents, len(TABLE))
    yield from table_checks(sweep)
    yield from start_checks(sweep)
    yield from law_checks(sweep)
    yield from pattern_checks(fixture.patterned)
    yield from conversion_checks(fixture)


TABLE: tuple[tuple[str, int, Vector, float], ...] = (
    ("LoRA", 8, (0.25, 0.0625, 0.015625, 0.00390625), 1.0 / 64.0),
    ("rsLoRA", 12, (1.0, 1.0, 1.0, 1.0), 1.0),
    ("weak divisor", 12, (2.0, 4.0, 8.0, 16.0), 8.0),
    ("over-divisor", 12, (0.015625, 0.000244140625, 0.000003814697, 0.000000059605), 1.0 / 262144.0),
)
DELTA: Matrix = ((-0.03125, 0.0625), (0.0625, -0.125))
INPUT_GRADIENT: Vector = (-0.078125, 0.15625)
GRAD_B: Matrix = ((0.25, -0.25, -0.5, 0.5), (-0.5, 0.5, 1.0, -1.0))
MODULES = (("q_proj", 64, 16.0), ("v_proj", 16, 32.0), ("o_proj", 4, 32.0))
DOUBLED = (("default", 4, 8.0), ("q_proj", 128, 32.0), ("v_proj", 32, 64.0), ("o_proj", 8, 64.0))

ORACLE = Oracle(
    name="rslora",
    document="V",
    sections=("0x04A", "0x04C", "0x04D", "0x04E", "0x04F", "0x04I", "0x04J"),
    module=__name__,
    fixture=RsloraFixture,
    evaluate=evaluate,
    proves=(
        "zero initial output and first gradients at every rank and rule",
        "the gamma^2 r factor of the learned delta and of the input gradient, exactly",
        "scales by effective rank under patterns, hotswap and merge, and both conversions to rank 2r",
    ),
    does_not_prove=(
        "the asymptotic theorem beyond its leading term, or that a higher rank learns better",
        "an optimizer other than one SGD step",
    ),
)
