"""LoRAMoE, Mixture-of-LoRAs and MoLE: one weighted sum, different objectives and gradients (R 0x03).

Shapes: LoRAMoE logits [B, T, J]; Mixture logits [B, L, J]; every softmax runs over the last axis.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, above, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    Vector,
    add,
    distance,
    inner,
    require_length,
    require_shape,
    scale,
    softmax,
    softmax_backward,
    squared_frobenius,
    subtract,
    transpose,
)
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.routed.method_training_mole import Mole, PaperGate, mole_checks, paper_gate_checks
from oracles.routed.method_training_states import TrainingRecord, TrainingState, state_checks

LORAMOE, MIXTURE, WITNESS = "R 0x03F", "R 0x03G", "R 0x03J"

Role = Literal["knowledge", "task"]
Form = Literal["paper", "code"]


class LoraMoe(Fixture):
    """Router logits, the two role assignments, and the constants of the localized balance."""

    logits: tuple[FixtureMatrix, FixtureMatrix]
    sample_role: tuple[Role, Role]
    expert_role: tuple[Role, Role, Role, Role]
    delta: float
    epsilon: float
    layers: Annotated[int, Field(ge=1)]
    projections: tuple[Literal["gate_proj", "up_proj", "down_proj"], ...]


class Mixture(Fixture):
    """Stage 2: one sequence-level distribution a layer, domain labels as targets."""

    logits: tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]
    domain: tuple[int, int, int]
    eta: float


class Stage2(Fixture):
    """One sample at one layer: logits z, expert outputs E_j [T, d_out], the rest of the output, a target, a label."""

    z: FixtureVector
    E: tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]
    base: FixtureMatrix
    target: FixtureMatrix
    label: Annotated[int, Field(ge=0, le=2)]


class TrainingFixture(Fixture):
    """The objectives of R 0x03F to 0x03H and the states of R 0x03E."""

    loramoe: LoraMoe
    mixture: Mixture
    stage2: Stage2
    mole: Mole
    paper_gate: PaperGate
    states: tuple[TrainingState, ...]
    record: TrainingRecord


def role_weights(moe: LoraMoe) -> Matrix:
    """I[b, j] = 1 + delta where sample and expert role agree, 1 - delta elsewhere."""
    return tuple(tuple(1.0 + moe.delta * (1 if s == e else -1) for e in moe.expert_role) for s in moe.sample_role)


def localized(moe: LoraMoe, logits: Sequence[Matrix]) -> Vector:
    """Z = I * Q flattened, with Q[b, j] = sum_t g[b, t, j]; N = B J entries."""
    Q = tuple(tuple(math.fsum(column) for column in transpose(tuple(map(softmax, z)))) for z in logits)
    return tuple(
        i * q for row, weights in zip(Q, role_weights(moe), strict=True) for q, i in zip(row, weights, strict=True)
    )


def spread(z: Vector, correction: int) -> float:
    """sum (z - mean)^2 / (N - correction): 0 is the population, 1 the sample variance."""
    mu = fmean(z)
    return math.fsum((x - mu) ** 2 for x in z) / (len(z) - correction)


def balance(z: Vector, form: Form, epsilon: float) -> float:
    """v / mu with population variance (paper), or v_s / (mu^2 + epsilon) with sample variance (code)."""
    mu = fmean(z)
    return spread(z, 0) / mu if form == "paper" else spread(z, 1) / (mu * mu + epsilon)


def balance_gradient(z: Vector, form: Form, epsilon: float) -> Vector:
    """d balance / d z_n of either form."""
    N, mu = len(z), fmean(z)
    if form == "paper":
        v = spread(z, 0)
        return tuple(2.0 * (x - mu) / (N * mu) - v / (N * mu * mu) for x in z)
    v, D = spread(z, 1), mu * mu + epsilon
    return tuple((2.0 * (x - mu) / (N - 1) * D - v * 2.0 * mu / N) / (D * D) for x in z)


def loramoe_loss(moe: LoraMoe, form: Form, point: Point) -> float:
    """The localized objective as a function of the logits."""
    return balance(localized(moe, tuple(point.values())), form, moe.epsilon)


def loramoe_gradient(moe: LoraMoe, form: Form) -> dict[str, Matrix]:
    """d/d logits: h[b, j] = I[b, j] dL/dZ[b, j] reaches every token of sample b through its softmax."""
    upstream = balance_gradient(localized(moe, moe.logits), form, moe.epsilon)
    J = len(moe.expert_role)
    found = {}
    for b, (z, weights) in enumerate(zip(moe.logits, role_weights(moe), strict=True)):
        h = tuple(i * u for i, u in zip(weights, upstream[b * J : (b + 1) * J], strict=True))
        found[str(b)] = tuple(softmax_backward(softmax(row), h) for row in z)
    return found


def classification(logits: Sequence[Matrix], domain: Sequence[int]) -> float:
    """L_cls = -mean over samples and layers of log g[b, l, c_b]."""
    return fmean(tuple(-math.log(softmax(row)[c]) for z, c in zip(logits, domain, strict=True) for row in z))


def classification_gradient(g: Vector, label: int, weight: float) -> Vector:
    """weight (g_j - 1[j = label])."""
    return tuple(weight * (x - (j == label)) for j, x in enumerate(g))


def vote(choices: Sequence[int], tie_break: str) -> int:
    """The most frequent choice; ties go to the stated end of the candidate order."""
    counted = Counter(choices)
    tied = [choice for choice, n in counted.items() if n == max(counted.values())]
    return min(tied) if tie_break == "lowest_index" else max(tied)


def choose(choices: Sequence[int], selection: str, tie_break: str) -> int:
    """The adapter generation uses: majority vote of the layers, or the last router's choice."""
    return vote(choices, tie_break) if selection == "router_vote" else choices[-1]


def stage2_output(stage: Stage2, g: Vector) -> Matrix:
    """base + sum_j g_j E_j for every row of the sequence."""
    return add(stage.base, *(scale(x, E) for x, E in zip(g, stage.E, strict=True)))


def stage2_loss(stage: Stage2, eta: float, point: Point) -> float:
    """A squared-error language term plus eta times the classification term."""
    g = softmax(point["z"][0])
    error = subtract(stage2_output(stage, g), stage.target)
    return squared_frobenius(error) / 2.0 - eta * math.log(g[stage.label])


def stage2_gradient(stage: Stage2, eta: float) -> tuple[Vector, Vector]:
    """(full, classification part): credit q_j = sum_t <D_t, E_j,t> of all rows, then the label."""
    g = softmax(stage.z)
    D = subtract(stage2_output(stage, g), stage.target)
    labels = classification_gradient(g, stage.label, eta)
    task = softmax_backward(g, tuple(inner(D, E) for E in stage.E))
    return tuple(x + y for x, y in zip(task, labels, strict=True)), labels


def loramoe_checks(moe: LoraMoe) -> Iterator[Check]:
    """Both printed forms on the same gates, their gradients, and how the code's terms accumulate."""
    z = localized(moe, moe.logits)
    yield equal("N = B J", len(z), 8, source=LORAMOE)
    gates = tuple(tuple(map(softmax, logits)) for logits in moe.logits)
    yield close("LoRAMoE gates", gates, LORAMOE_GATES, source=LORAMOE, digits=6)
    yield close("role weights", role_weights(moe), ROLE_WEIGHTS, source=LORAMOE, digits=12)
    yield close("mu", fmean(z), 0.517849, source=LORAMOE, digits=6)
    variances = (spread(z, 0), spread(z, 1))
    yield close("population and sample variance", variances, (0.071864, 0.082130), source=LORAMOE, digits=6)
    objectives = (balance(z, "paper", moe.epsilon), balance(z, "code", moe.epsilon))
    yield close("paper and code objective", objectives, (0.138774, 0.306265), source=LORAMOE, digits=6)
    yield equal("epsilon", moe.epsilon, 1e-10, source=LORAMOE)
    projections = (moe.layers, *moe.projections)
    yield equal("layers and projections", projections, (2, "gate_proj", "up_proj", "down_proj"), source=LORAMOE)
    terms = moe.layers * len(moe.projections)
    pooled = balance(z * terms, "code", moe.epsilon)
    yield close("sum of local code terms", terms * objectives[1], 1.837589, source=LORAMOE, digits=6)
    yield above("local terms are not one pooled statistic", terms * objectives[1] - pooled, 1.0, source=LORAMOE)
    point = {str(b): logits for b, logits in enumerate(moe.logits)}
    for form, bound in zip(FORMS, (3.70e-11, 1.18e-10), strict=True):
        difference = compare(partial(loramoe_loss, moe, form), point, loramoe_gradient(moe, form))
        yield gradient(f"LoRAMoE {form} form", difference, bound, source=WITNESS)
    ratios = [a / b for a, b in zip(*(balance_gradient(z, f, moe.epsilon) for f in FORMS), strict=True)]
    yield above("the gradients are no multiples of each other", max(ratios) - min(ratios), 0.01, source=LORAMOE)


def mixture_checks(mixture: Mixture, record: TrainingRecord) -> Iterator[Check]:
    """Classification over samples and layers, a balanced window, and two selection policies."""
    for label in mixture.domain:
        if not 0 <= label < len(mixture.logits[0][0]):
            raise FixtureRefusedError("mixture.domain", label, "an adapter index")
    histogram = tuple(mixture.domain.count(c) for c in range(3))
    yield equal("domain histogram of the window", histogram, (1, 1, 1), source=WITNESS)
    gates = tuple(tuple(map(softmax, logits)) for logits in mixture.logits)
    yield close("Mixture gates", gates, MIXTURE_GATES, source=MIXTURE, digits=6)
    loss = classification(mixture.logits, mixture.domain)
    yield close("classification loss", loss, 0.694150, source=WITNESS, digits=6)
    yield close("eta times classification", mixture.eta * loss, 0.277660, source=WITNESS, digits=6)
    point = {str(b): logits for b, logits in enumerate(mixture.logits)}
    weight = 1.0 / sum(len(z) for z in mixture.logits)
    found = {
        str(b): tuple(classification_gradient(softmax(row), c, weight) for row in z)
        for b, (z, c) in enumerate(zip(mixture.logits, mixture.domain, strict=True))
    }
    difference = compare(lambda at: classification(tuple(at.values()), mixture.domain), point, found)
    yield gradient("Mixture classification", difference, 4.17e-11, source=WITNESS)
    choices = tuple(row.index(max(row)) for row in mixture.logits[2])
    yield equal("layer choices", choices, (2, 2, 0), source=MIXTURE)
    policies = tuple(choose(choices, policy, record.tie_break) for policy in ("router_vote", "last_router"))
    yield equal("vote and last router", policies, (2, 0), source=MIXTURE)
    yield equal("adapter of the sequence", choose(choices, record.selection, record.tie_break), 2, source=MIXTURE)
    yield equal("tied vote", vote((1, 0), record.tie_break), 0, source=MIXTURE)


def stage2_checks(stage: Stage2, eta: float) -> Iterator[Check]:
    """The full router gradient holds task credit as well as labels."""
    require_length("stage2.z", stage.z, 3)
    for E in (*stage.E, stage.base, stage.target):
        require_shape("stage2", E, (2, 2))
    point = {"z": (stage.z,)}
    yield close("stage-2 loss", stage2_loss(stage, eta, point), 1.015103957, source=MIXTURE, digits=9)
    full, labels = stage2_gradient(stage, eta)
    difference = compare(partial(stage2_loss, stage, eta), point, {"z": (full,)})
    yield gradient("stage-2 router", difference, 1e-9, source=MIXTURE)
    yield above("classification is only part of it", distance((full,), (labels,)), 1e-3, source=MIXTURE)


def evaluate(fixture: TrainingFixture) -> Iterator[Check]:
    """Every check of R 0x03."""
    for logits in fixture.loramoe.logits:
        require_shape("loramoe.logits", logits, (2, 4))
    for logits in fixture.mixture.logits:
        require_shape("mixture.logits", logits, (3, 3))
    yield from state_checks(fixture.states, fixture.record)
    yield from loramoe_checks(fixture.loramoe)
    yield from mixture_checks(fixture.mixture, fixture.record)
    yield from stage2_checks(fixture.stage2, fixture.mixture.eta)
    yield from mole_checks(fixture.mole)
    yield from paper_gate_checks(fixture.paper_gate)


FORMS: tuple[Form, Form] = ("paper", "code")
ROLE_WEIGHTS: Matrix = ((1.2, 1.2, 0.8, 0.8), (0.8, 0.8, 1.2, 1.2))
LORAMOE_GATES = (
    ((0.391164, 0.292865, 0.138339, 0.177631), (0.421975, 0.328634, 0.155236, 0.094155)),
    ((0.629542, 0.094198, 0.120953, 0.155307), (0.220299, 0.133618, 0.363212, 0.28287)),
)
MIXTURE_GATES = (
    ((0.628532, 0.231224, 0.140244), (0.50648, 0.307196, 0.186324), (0.589798, 0.131602, 0.278601)),
    ((0.162891, 0.568546, 0.268562), (0.268562, 0.568546, 0.162891), (0.231224, 0.628532, 0.140244)),
    ((0.131602, 0.278601, 0.589798), (0.256687, 0.199908, 0.543406), (0.745657, 0.096025, 0.158318)),
)

ORACLE = Oracle(
    name="method_training",
    document="R",
    sections=("0x03A", "0x03B", "0x03C", "0x03D", "0x03E", "0x03F", "0x03G", "0x03H", "0x03I", "0x03J"),
    module=__name__,
    fixture=TrainingFixture,
    evaluate=evaluate,
    proves=(
        "the paper's and the code's localized balance, on the same gates, with their gradients",
        "the classification part of the stage-2 router gradient and what it leaves out; vote against last router",
        "MoLE balance and temperature gradients, a detached statistic, frozen candidates that still carry gradients",
    ),
    does_not_prove=(
        "that localized balance prevents forgetting, or that any balance improves quality",
        "a framework's autograd, an optimizer schedule, or a paper checkpoint",
    ),
    own=("loramoe", "mixture.logits", "stage2", "mole", "paper_gate", "record"),
)
