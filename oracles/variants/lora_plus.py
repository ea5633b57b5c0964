"""LoRA+: the factors move at different rates, so optimizer groups are part of the experiment (V 0x05A to 0x05E).

Shapes: A [r, d_in]; B [d_out, r]; z [d_in]; g = dL/dZ_B [d_out]; Z_B = B A z.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from oracles.checks import Check, above, close, equal, gradient
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    apply,
    distance,
    matmul,
    max_abs,
    require_length,
    require_shape,
    shape,
    subtract,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.variants.adamw import Adam, Group, State, start, update
from oracles.variants.lora import backward, held_against_differences, require_factors

FEATURES, WIDTH, SEARCH, GROUPS = "V 0x05A", "V 0x05B", "V 0x05C", "V 0x05D"
RESUME, MAGNITUDE = "V 0x05E", "V 0x09F"

ADAM = Adam(0.9, 0.999, 1e-8)


class Parameter(Fixture):
    """What the classifier sees of one parameter."""

    name: str
    dimensions: Literal[1, 2]
    trainable: bool
    owner: Literal["linear", "embedding"]


class Features(Fixture):
    """One token's features, the two factor updates and an upstream gradient."""

    A: FixtureMatrix
    B: FixtureMatrix
    A_update: FixtureMatrix
    B_update: FixtureMatrix
    z: FixtureVector
    g: FixtureVector
    s: float


class Width(Fixture):
    """Exponents of the two learning rates in the width n."""

    eta_a: float
    eta_b: float


class Scheduler(Fixture):
    """Factors over time, for every group or for group A alone."""

    factors: FixtureVector
    applies_to: Literal["every_group", "group_a"]


class LoraPlusFixture(Fixture):
    """The groups of V 0x05D; names, decay and feature values are ours."""

    eta_a: float
    ratio: float
    embedding_eta: float
    decay: float
    parameters: tuple[Parameter, ...]
    features: Features
    width: Width
    scheduler: Scheduler
    resumed_groups: Literal["restored", "equal_rates"]


class Row(NamedTuple):
    """One optimizer group: its rate, its decay and its members in order."""

    group: str
    eta: float
    decay: float
    members: tuple[str, ...]


NAMES = ("groupA", "embedding", "groupB", "groupB_no_decay")


def decayed(parameter: Parameter) -> bool:
    """PEFT's decay set: every parameter that is no bias."""
    return "bias" not in parameter.name


def document_group(parameter: Parameter) -> str:
    """The document's classifier: embeddings apart, one-dimensional parameters in the no-decay B group (V 0x09F)."""
    if parameter.owner == "embedding":
        return "embedding"
    if parameter.dimensions == 1:
        return "groupB_no_decay"
    return "groupB" if "lora_B" in parameter.name else "groupA"


def pinned_group(parameter: Parameter) -> str:
    """PEFT 0.19.1 executed: it asks a parameter, never its module, for being an embedding; decay goes by name."""
    if "lora_B" not in parameter.name and parameter.dimensions == 2:
        return "groupA"
    return "groupB" if decayed(parameter) else "groupB_no_decay"


def grouped(fixture: LoraPlusFixture, classifier: str) -> tuple[Row, ...]:
    """The four groups; a frozen parameter is in none."""
    classify = document_group if classifier == "document" else pinned_group
    etas = {"groupA": fixture.eta_a, "embedding": fixture.embedding_eta}
    rows = []
    for group in NAMES:
        members = tuple(p.name for p in fixture.parameters if p.trainable and classify(p) == group)
        decay = 0.0 if group == "groupB_no_decay" else fixture.decay
        rows.append(Row(group, etas.get(group, fixture.ratio * fixture.eta_a), decay, members))
    return tuple(rows)


def contributions(f: Features) -> tuple[Vector, Vector, Vector]:
    """delta_1 = B dZ_A, delta_2 = dB Z_A and delta_3 = dB dZ_A."""
    feature, change = apply(f.A, f.z), apply(f.A_update, f.z)
    return apply(f.B, change), apply(f.B_update, feature), apply(f.B_update, change)


def exponents(eta_a: float, eta_b: float) -> tuple[float, float, float, float]:
    """Width exponents of delta_1, delta_2, B and A z after the first steps from B = 0 and A z = Theta(1)."""
    B, feature = max(-math.inf, eta_b), max(0.0, eta_a + 1.0)
    return eta_a + B + 1.0, eta_b + feature, B, feature


def token_gradients(f: Features, state: State) -> dict[str, Matrix]:
    """dA and dB of <g, s B A z> at the parameters of a state."""
    W = zeros(len(f.g), len(f.z))
    return backward(W, state.parameters["A"], state.parameters["B"], f.s, (f.z,), (f.g,))


def stepped(f: Features, state: State, eta_a: float, eta_b: float) -> State:
    """One AdamW step without decay."""
    return update(state, token_gradients(f, state), {"A": Group(eta_a, 0.0), "B": Group(eta_b, 0.0)}, ADAM)


def feature_checks(f: Features) -> Iterator[Check]:
    """Three contributions, the ordinary gradients, and the first step from B = 0."""
    parts = contributions(f)
    yield equal("delta_1, delta_2 and delta_3", parts, CONTRIBUTIONS, source=FEATURES)
    after = apply(matmul(add(f.B, f.B_update), add(f.A, f.A_update)), f.z)
    change = subtract((after,), (apply(matmul(f.B, f.A), f.z),))
    yield equal("their sum is the feature update", change, add(*((part,) for part in parts)), source=FEATURES)
    W = zeros(len(f.g), len(f.z))
    grads = backward(W, f.A, f.B, f.s, (f.z,), (f.g,))
    yield equal("grad A", grads["A"], GRAD_A, source=FEATURES)
    yield equal("grad B", grads["B"], GRAD_B, source=FEATURES)
    held = held_against_differences(W, f.A, f.B, f.s, (f.z,), (f.g,))
    yield gradient("gradients against differences", held, 1e-8, source=FEATURES)
    first = backward(W, f.A, zeros(*shape(f.B)), f.s, (f.z,), (f.g,))
    yield equal("first grad A at B = 0", max_abs(first["A"]), 0.0, source=FEATURES)
    yield equal("first grad B at B = 0", first["B"], GRAD_B, source=FEATURES)


def rate_checks(fixture: LoraPlusFixture) -> Iterator[Check]:
    """Width exponents of both assignments, and which rate drives the first step."""
    w = fixture.width
    yield equal("stable and efficient exponents", exponents(w.eta_a, w.eta_b), (0.0, 0.0, 0.0, 0.0), source=WIDTH)
    yield equal("equal rates: B shrinks, A z grows", exponents(-0.5, -0.5), (0.0, 0.0, -0.5, 0.5), source=WIDTH)
    yield equal("exponents of the rates", (w.eta_a + w.eta_b, w.eta_b - w.eta_a), (-1.0, 1.0), source=WIDTH)
    rates = (fixture.eta_a, fixture.ratio, fixture.ratio * fixture.eta_a)
    yield close("eta_A, lambda and eta_B", rates, (1e-4, 16.0, 1.6e-3), source=SEARCH, digits=7)
    f = fixture.features
    origin = start({"A": f.A, "B": zeros(*shape(f.B))}, ("A", "B"))
    one, other, third = (stepped(f, origin, *pair) for pair in ((1e-4, 1e-3), (1e-1, 1e-3), (1e-4, 1e-1)))
    product = matmul(one.parameters["B"], one.parameters["A"])
    moved = distance(product, matmul(other.parameters["B"], other.parameters["A"]))
    yield equal("eta_A cannot change the first step", moved, 0.0, source=FEATURES)
    driven = distance(product, matmul(third.parameters["B"], third.parameters["A"]))
    yield above("eta_B drives the first step", driven, 1e-2, source=FEATURES)


def group_checks(fixture: LoraPlusFixture) -> Iterator[Check]:
    """The document's groups, and those its pinned code builds when executed."""
    found = grouped(fixture, "document")
    yield equal("groups", tuple(row.members for row in found), MEMBERS, source=GROUPS)
    placed = {name for row in found for name in row.members}
    left_out = tuple(p.name for p in fixture.parameters if p.name not in placed)
    yield equal("frozen parameters are in no group", left_out, ("proj.weight",), source=GROUPS)
    rates = tuple((row.eta, row.decay) for row in found)
    yield close("rates and decays", rates, RATES, source=GROUPS, digits=9)
    pinned = tuple(row.members for row in grouped(fixture, "pinned"))
    yield equal("groups of the pinned code", pinned, PINNED, source=GROUPS, stated=MEMBERS)
    magnitude = next((p for p in fixture.parameters if "magnitude" in p.name), None)
    home = None if magnitude is None else pinned_group(magnitude)
    yield equal("group of a DoRA magnitude", home, "groupB", source=MAGNITUDE, stated="groupB_no_decay")


def resume_checks(fixture: LoraPlusFixture) -> Iterator[Check]:
    """One factor on every group keeps the ratio; equal rates resume another trajectory from equal tensors."""
    s, eta_b = fixture.scheduler, fixture.ratio * fixture.eta_a
    etas = tuple((c * fixture.eta_a, c * eta_b if s.applies_to == "every_group" else eta_b) for c in s.factors)
    scheduled = tuple(b for _, b in etas)
    yield close("scheduled B rates", scheduled, (1.6e-3, 8e-4, 4e-4), source=RESUME, digits=7)
    yield close("scheduled ratios", tuple(b / a for a, b in etas), (16.0, 16.0, 16.0), source=RESUME, digits=9)
    f = fixture.features
    saved = stepped(f, start({"A": f.A, "B": f.B}, ("A", "B")), fixture.eta_a, eta_b)
    direct = stepped(f, saved, fixture.eta_a, eta_b)
    resumed = stepped(f, saved, fixture.eta_a, eta_b if fixture.resumed_groups == "restored" else fixture.eta_a)
    yield equal("restored groups resume the trajectory", direct == resumed, True, source=RESUME)
    equal_rates = stepped(f, saved, fixture.eta_a, fixture.eta_a)
    drift = distance(direct.parameters["B"], equal_rates.parameters["B"])
    yield above("equal rates leave the trajectory", drift, 1e-3, source=RESUME)


def evaluate(fixture: LoraPlusFixture) -> Iterator[Check]:
    """Every check of V 0x05A to 0x05E, in the order of its subsections."""
    f = fixture.features
    W = zeros(len(f.g), len(f.z))
    for A, B in ((f.A, f.B), (f.A_update, f.B_update)):
        require_factors(W, A, B)
    require_shape("A_update", f.A_update, shape(f.A))
    require_length("parameters", fixture.parameters, 6)
    yield from feature_checks(f)
    yield from rate_checks(fixture)
    yield from group_checks(fixture)
    yield from resume_checks(fixture)


CONTRIBUTIONS: tuple[Vector, ...] = ((1.25, -1.25), (0.25, 3.0), (-0.5, 0.5))
GRAD_A: Matrix = ((0.0, 0.0, 0.0), (-5.0, -2.5, 2.5))
GRAD_B: Matrix = ((1.5, 1.0), (-3.0, -2.0))
MEMBERS = (
    ("proj.lora_A",),
    ("embed.lora_embedding_A",),
    ("proj.lora_B",),
    ("proj.lora_magnitude_vector", "proj.bias"),
)
RATES = ((1e-4, 0.01), (1e-6, 0.01), (1.6e-3, 0.01), (1.6e-3, 0.0))
PINNED = (
    ("proj.lora_A", "embed.lora_embedding_A"),
    (),
    ("proj.lora_B", "proj.lora_magnitude_vector"),
    ("proj.bias",),
)

ORACLE = Oracle(
    name="lora_plus",
    document="V",
    sections=("0x05A", "0x05B", "0x05C", "0x05D", "0x05E", "0x09F"),
    module=__name__,
    fixture=LoraPlusFixture,
    evaluate=evaluate,
    proves=(
        "the three feature contributions, and that eta_B alone drives the first step",
        "the width exponents of the stable assignment and of equal rates",
        "four groups with their rates and decays, by the document and by the pinned code, and the kept ratio",
    ),
    does_not_prove=(
        "that 16 or any other finite ratio is right: theory leaves a class of scale, practice a search",
        "the state width of 8-bit optimizers, or any training result",
    ),
    own=("decay", "parameters", "features", "scheduler"),
    no_role={
        "/parameters/5/dimensions": "frozen: excluded before it is classified",
        "/parameters/5/owner": "frozen: excluded before it is classified",
    },
)
