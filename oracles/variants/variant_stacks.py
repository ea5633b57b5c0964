"""Variant stacks: compatibility is a vector of eight coordinates, and order is part of the operator (V 0x09).

Shapes: W0, W_q, U [3, 3]; A [2, 3]; B [3, 2]; G = dL/dW_eff [3, 3]; `spectral` [3, 3].
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    inner,
    matmul,
    require_length,
    require_shape,
    row_norms,
    scale,
    squared_frobenius,
    subtract,
    transpose,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, Oracle
from oracles.variants.dora import effective_weight, full_backward
from oracles.variants.lora import effective, rounded, spectral_factors
from oracles.variants.rslora import Module, refuses_patterns, scaling
from oracles.variants.variant_stacks_rules import (
    COORDINATES,
    Axes,
    NamedStack,
    artifact_union,
    mechanisms,
    outcome,
    owners,
    vector,
)

UNION_OWNER, AUDIT, ORDER, QDORA = "V 0x09A", "V 0x09B", "V 0x09C", "V 0x09D"
BOUNDED, EXECUTABLE, REFUSED, ARTIFACT, ORACLE_SECTION = "V 0x09E", "V 0x09F", "V 0x09G", "V 0x09H", "V 0x09K"


class Stack(NamedStack):
    """A stack, and whether the document names it."""

    named_in_document: bool


class StacksFixture(Fixture):
    """Sixteen stacks, a matrix that rounds to the printed row, and a diagonal witness of order."""

    stacks: tuple[Stack, ...]
    alpha: float
    step: Annotated[float, Field(gt=0)]
    W0: FixtureMatrix
    A: FixtureMatrix
    B: FixtureMatrix
    G: FixtureMatrix
    spectral: FixtureMatrix


def principal(W: Matrix, r: int = 1) -> Matrix:
    """Pi_r(W): the best rank-r part."""
    B, A = spectral_factors(W, r, 1.0)
    return matmul(B, A)


def spectral_then_quantized(W: Matrix, step: float) -> Matrix:
    """W_a = Q(W - Pi_1(W)) + Pi_1(W)."""
    part = principal(W)
    return add(rounded(subtract(W, part), step), part)


def quantized_then_spectral(W: Matrix, step: float) -> Matrix:
    """W_b = Q(W) + Pi_1(W - Q(W))."""
    base = rounded(W, step)
    return add(base, principal(subtract(W, base)))


def letters(statuses: tuple[str, ...]) -> tuple[str, ...]:
    """The statuses in the table's short form."""
    return tuple(SHORT[status] for status in statuses)


def table_checks(fixture: StacksFixture) -> Iterator[Check]:
    """Mechanisms, vector and outcome of every stack: the cells the document determines, then all eight."""
    names = tuple(stack.name for stack in fixture.stacks)
    yield equal("stacks", names, tuple(TABLE), source=ORACLE_SECTION)
    if names != tuple(TABLE):
        raise FixtureRefusedError("stacks", names, f"the stacks {', '.join(TABLE)}")
    named = sum(stack.named_in_document for stack in fixture.stacks)
    yield equal("stacks the document names", named, 15, source=ORACLE_SECTION, stated=16)
    for stack in fixture.stacks:
        printed, whole, expected, parts = TABLE[stack.name]
        found = vector(stack.axes)
        yield equal(f"mechanisms of {stack.name}", mechanisms(stack.axes), tuple(parts.split()), source=UNION_OWNER)
        cells = tuple(x if known != "-" else "-" for x, known in zip(letters(found), printed.split(), strict=True))
        verdict = (*cells, outcome(found))
        yield equal(f"determined cells of {stack.name}", verdict, (*printed.split(), expected), source=AUDIT)
        yield equal(f"all cells of {stack.name}", letters(found), tuple(whole.split()), source=AUDIT)


def scale_checks(fixture: StacksFixture) -> Iterator[Check]:
    """Classic and rank-stabilised scale, and the scale AdaLoRA executes whatever is asked."""
    alpha, r = fixture.alpha, len(fixture.A)
    both = (scaling(alpha, r, "lora"), scaling(alpha, r, "rslora"))
    yield close("classic and rank-stabilised scale", both, (2.0, 2.828427), source=BOUNDED, digits=6)
    executed = alpha / (r + 1e-5)
    yield close("scale AdaLoRA executes under rsLoRA", executed, 1.99999, source=REFUSED, digits=6)
    accepted = _stack(fixture, "AdaLoRA+LoftQ").model_copy(update={"initializer": "loftq_config_only"})
    status = vector(accepted)[COORDINATES.index("config")]
    yield equal(
        "AdaLoRA with a loftq_config alone",
        status,
        "accepted_but_shadowed",
        source=REFUSED,
        stated="rejected",
    )


def _stack(fixture: StacksFixture, name: str) -> Axes:
    return next(stack.axes for stack in fixture.stacks if stack.name == name)


def qdora_checks(fixture: StacksFixture) -> Iterator[Check]:
    """A dequantized base, a scaled direction, and a magnitude that keeps the row norm."""
    Wq, s = rounded(fixture.W0, fixture.step), scaling(fixture.alpha, len(fixture.A), "lora")
    yield equal("W_q", Wq, BASE, source=QDORA)
    yield close("W0 - W_q", subtract(fixture.W0, Wq), RESIDUAL, source=QDORA, digits=12)
    U, m = effective(Wq, fixture.A, fixture.B, s), row_norms(Wq)
    yield close("W_q + s B A", U, DIRECTION, source=QDORA, digits=12)
    yield close("initial magnitude of row 1", m[0], 1.224744871392, source=QDORA, digits=12)
    yield close("effective row 1", effective_weight(U, m)[0], EFFECTIVE_ROW, source=QDORA, digits=12)
    start = effective_weight(effective(Wq, fixture.A, zeros(3, 2), s), m)
    yield equal("zero B starts at W_q", distance(start, Wq), 0.0, source=QDORA)


def identity_checks(fixture: StacksFixture) -> Iterator[Check]:
    """PiSSA or LoftQ under DoRA start exactly; their portable artifact stays without evidence."""
    W0, Wq, s = fixture.W0, rounded(fixture.W0, fixture.step), scaling(fixture.alpha, len(fixture.A), "lora")
    B, A = spectral_factors(W0, 1, s)
    residual = subtract(W0, scale(s, matmul(B, A)))
    pissa = distance(effective_weight(effective(residual, A, B, s), row_norms(W0)), W0)
    yield below("PiSSA+DoRA starts at W0", pissa, 1e-14, source=EXECUTABLE)
    B, A = spectral_factors(subtract(W0, Wq), 1, s)
    U = effective(Wq, A, B, s)
    loftq = distance(effective_weight(U, row_norms(U)), U)
    yield equal("LoftQ+DoRA starts at its own direction", loftq, 0.0, source=EXECUTABLE)
    place = COORDINATES.index("artifact")
    evidence = tuple(vector(_stack(fixture, n))[place] == "pass" for n in ("PiSSA+DoRA", "LoftQ+DoRA"))
    yield equal("portable artifact evidence", evidence, (False, False), source=ORACLE_SECTION)
    left = squared_frobenius(subtract(W0, Wq))
    yield close("quantization error a zero lambda leaves", left, 0.10, source=BOUNDED, digits=12)
    yield above("LoftQ leaves less of it", left - squared_frobenius(subtract(W0, U)), 0.01, source=BOUNDED)


def order_checks(fixture: StacksFixture) -> Iterator[Check]:
    """Quantization and spectral correction do not commute; two native PiSSA adapters claim two bases."""
    W = fixture.spectral
    first, second = spectral_then_quantized(W, fixture.step), quantized_then_spectral(W, fixture.step)
    yield close("spectral split, then quantized", first, SPLIT_FIRST, source=ORDER, digits=12)
    yield close("quantized, then spectral split", second, QUANTIZED_FIRST, source=ORDER, digits=12)
    yield close("non-commutation", distance(first, second), 0.2, source=ORDER, digits=12)
    one = principal(W)
    two = principal(subtract(W, one))
    base = subtract(subtract(W, one), two)
    yield close("first adapter on the base of the second", add(base, one), OTHER_BASE, source=REFUSED, digits=12)
    error = squared_frobenius(subtract(add(base, one), W))
    yield close("its squared error", error, 0.64, source=REFUSED, digits=12)


def conflict_checks(fixture: StacksFixture) -> Iterator[Check]:
    """The derivation LoRA-FA lacks under DoRA, the two owners of A, and the refused conversion."""
    Wq, s = rounded(fixture.W0, fixture.step), scaling(fixture.alpha, len(fixture.A), "lora")
    m, G = row_norms(Wq), fixture.G

    def loss(point: Point) -> float:
        return inner(G, effective_weight(effective(Wq, fixture.A, point["B"], s), m))

    _, grad_U = full_backward(effective(Wq, fixture.A, fixture.B, s), m, G)
    normalised = scale(s, matmul(grad_U, transpose(fixture.A)))
    additive = scale(s, matmul(G, transpose(fixture.A)))
    held = compare(loss, {"B": fixture.B}, {"B": normalised})
    yield gradient("gradient of B under DoRA", held, 1e-8, source=REFUSED)
    yield close("additive gradient of B", additive, ADDITIVE, source=REFUSED, digits=12)
    yield above("the additive gradient is another", distance(normalised, additive), 0.1, source=REFUSED)
    claimed = owners(_stack(fixture, "LoRA+&LoRA-FA"))
    yield equal("optimizers that own B", claimed["B"], ("lora_plus", "lora_fa"), source=REFUSED)
    patterned = refuses_patterns("rslora", (Module("proj", 2, fixture.alpha),))
    yield equal("patterned rank-stabilised conversion is refused", patterned, True, source=REFUSED)


def artifact_checks(fixture: StacksFixture) -> Iterator[Check]:
    """Unions of the parts' state with the fields only a pair has."""
    for name, fields in UNIONS.items():
        found = artifact_union(_stack(fixture, name))
        yield equal(f"artifact of {name}", found, tuple(fields.split()), source=ARTIFACT)


def evaluate(fixture: StacksFixture) -> Iterator[Check]:
    """Every check of V 0x09, in the order of its subsections."""
    require_length("stacks", fixture.stacks, len(TABLE))
    for name, a in (("W0", fixture.W0), ("G", fixture.G), ("spectral", fixture.spectral)):
        require_shape(name, a, (3, 3))
    require_shape("A", fixture.A, (2, 3))
    require_shape("B", fixture.B, (3, 2))
    yield from table_checks(fixture)
    yield from order_checks(fixture)
    yield from qdora_checks(fixture)
    yield from scale_checks(fixture)
    yield from identity_checks(fixture)
    yield from conflict_checks(fixture)
    yield from artifact_checks(fixture)


SHORT = {
    "pass": "P",
    "conditional": "C",
    "shadowed": "S",
    "accepted_but_shadowed": "AS",
    "unverified": "U",
    "rejected": "R",
    "conflict": "X",
    "missing_derivation": "M",
}
TABLE = {
    "QLoRA+rsLoRA": ("P - P P P P P -", "P P P P P P P P", "admitted", "nf4 alpha_over_sqrt_r"),
    "QDoRA": ("P - P P P P P P", "P P P P P P P P", "admitted", "nf4 dora"),
    "LoRA-FA+rsLoRA": ("P P P P P P - P", "P P P P P P P P", "admitted", "alpha_over_sqrt_r lora_fa"),
    "PiSSA+rsLoRA": ("P - P P P P P P", "P P P P P P P P", "admitted", "alpha_over_sqrt_r pissa converted"),
    "QAdaLoRA": ("- - P - - U P C", "P P P P P U P C", "conditional", "nf4 adalora"),
    "LoRA+&DoRA": ("- P P C C - - U", "P P P C C P P U", "conditional", "dora lora_plus"),
    "PiSSA+DoRA": ("P P P - U - - U", "P P P P U P P U", "conditional", "pissa dora"),
    "LoftQ+DoRA": ("P P P - U - - U", "P P P P U P P U", "conditional", "nf4 loftq dora"),
    "AdaLoRA+DoRA": ("- R - - - - - -", "P R U U U U U U", "refused", "adalora dora"),
    "AdaLoRA+LoftQ": ("- R - - - - - -", "P R U U U U U C", "refused", "nf4 adalora loftq"),
    "AdaLoRA+rsLoRA": ("- AS S S - - - -", "P AS S S P P P P", "conditional", "adalora alpha_over_sqrt_r"),
    "LoRA+&LoRA-FA": ("- X - X - - - -", "P X U X U U U U", "refused", "lora_plus lora_fa"),
    "LoRA-FA+DoRA": ("- - - M - - - -", "P P P M U U U U", "refused", "dora lora_fa"),
    "PiSSA+patterned-rsLoRA": (
        *("- C C - R - C -", "P C C P R U C U", "refused"),
        "patterned alpha_over_sqrt_r pissa converted",
    ),
    "several-native-PiSSA": ("X - - - X - - -", "X U U U X U U U", "refused", "pissa several_adapters"),
    "QLoRA+LoRA-FA": ("P - - - - - - C", "P P P P P P P C", "conditional", "nf4 lora_fa"),
}
"""Stack -> cells the document determines, all cells by the facts, outcome, mechanisms."""

BASE: Matrix = ((1.0, -0.5, 0.5), (0.5, 1.0, -0.5), (-1.0, 0.5, 1.5))
RESIDUAL: Matrix = ((0.1, 0.1, 0.1), (-0.1, 0.2, 0.0), (-0.1, 0.0, -0.1))
DIRECTION: Matrix = ((1.22, -0.68, 0.50), (0.56, 0.86, 0.50), (-1.18, 0.72, 0.70))
EFFECTIVE_ROW: Vector = (1.007198734693, -0.561389458681, 0.412786366677)
SPLIT_FIRST: Matrix = ((1.1, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0))
QUANTIZED_FIRST: Matrix = ((1.0, 0.0, 0.0), (0.0, 0.8, 0.0), (0.0, 0.0, 0.0))
OTHER_BASE: Matrix = ((1.1, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.1))
ADDITIVE: Matrix = ((-0.2, 2.1), (-0.1, 0.15), (0.4, -1.1))
UNIONS = {
    "QDoRA": "packed_payload quantizer_type block_size scale_metadata compute_dtype magnitude normalization_axis "
    "runtime_variant magnitude_of_the_dequantized_base",
    "PiSSA+rsLoRA": "scale_rule rank alpha residual_base_identity initial_adapter_identity conversion_rule "
    "conversion_scale_convention",
    "LoRA+&DoRA": "magnitude normalization_axis runtime_variant group_classifier rate_ratio magnitude_group_policy",
    "LoRA-FA+rsLoRA": "scale_rule rank alpha frozen_A fa_scale_rule",
}

ORACLE = Oracle(
    name="variant_stacks",
    document="V",
    sections=("0x09A", "0x09B", "0x09C", "0x09D", "0x09E", "0x09F", "0x09G", "0x09H", "0x09J", "0x09K"),
    module=__name__,
    fixture=StacksFixture,
    evaluate=evaluate,
    proves=(
        "sixteen vectors derived from axes, each cell the document determines, and every outcome",
        "the QDoRA row, two exact starts without portable evidence, and operations that do not commute",
        "shadowed scale, missing derivation, doubly owned factor and doubly claimed base, each executed",
    ),
    does_not_prove=(
        "cells the document leaves open: they pass unless a fact objects, and are unverified behind a refusal",
        "another framework version, or the quality of any stack",
    ),
    own=("stacks", "W0", "A", "B", "G", "spectral"),
    document_mutations=66,
)
