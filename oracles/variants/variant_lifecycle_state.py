"""The lifecycle's state machine: start, train, resume, export, reload, release, roll back (V 0x0AA to 0x0AI).

Shapes: W0, W_q, base, weight [3, 3]; A [2, 3]; B [3, 2]; magnitude [1, 3]; X, G [2, 3].
"""

import json
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.errors import FixtureRefusedError
from oracles.linalg import inverse
from oracles.matrix import (
    Matrix,
    hstack,
    matmul,
    row_norms,
    scale,
    subtract,
    transpose,
    vstack,
    zeros,
)
from oracles.model import Fixture, FixtureMatrix
from oracles.variants.adamw import Adam, Group, State, start, update
from oracles.variants.dora import detached_backward, effective_weight, full_backward
from oracles.variants.lora import effective, rounded, spectral_factors
from oracles.variants.lora_fa import corrected, gram
from oracles.variants.rslora import Rule, convert, scaling
from oracles.variants.variant_stacks_rules import Axes, NamedStack
from schemas.digests import blob_digest


class Batch(Fixture):
    """One input batch and its upstream gradient G = dL/dY."""

    X: FixtureMatrix
    G: FixtureMatrix


class AdamFields(Fixture):
    """AdamW's three constants."""

    beta1: float
    beta2: float
    epsilon: Annotated[float, Field(gt=0)]


class GroupFields(Fixture):
    """One parameter's learning rate and decay."""

    eta: float
    decay: float


class Groups(Fixture):
    """Every parameter owns its group."""

    A: GroupFields
    B: GroupFields
    magnitude: GroupFields


class Names(Fixture):
    """Namespace coordinates and immutable identities."""

    prefix: str
    module: str
    training_slot: str
    reload_slot: str
    quantized_base: str
    dense_base: str
    quantizer: str


class LifecycleFixture(Fixture):
    """Four admitted stacks, six bounded ones, and the tensors all of them share."""

    stacks: tuple[NamedStack, ...]
    bounded: tuple[NamedStack, ...]
    W0: FixtureMatrix
    step: Annotated[float, Field(gt=0)]
    A: FixtureMatrix
    B: FixtureMatrix
    alpha: float
    batches: tuple[Batch, ...]
    adam: AdamFields
    groups: Groups
    names: Names
    norm_backward: Literal["detached", "full"]
    frozen_factor_gradient: Literal["corrected", "raw"]
    resume: Literal["whole_state", "parameters_only"]
    portable_scale: Literal["converted", "kept_alpha"]
    release_from: Literal["second_update", "first_update"]
    rollback: Literal["immutable_base", "arithmetic_unmerge"]


class Run(NamedTuple):
    """P0, and the states after the first and the second update (P1, P2)."""

    axes: Axes
    s: float
    base: Matrix
    runtime_base: Matrix
    begun: State
    first: State
    second: State

    def weight(self, state: State) -> Matrix:
        """The effective weight of a state."""
        return weight(self.axes, self.base, state.parameters, self.s)


class Portable(NamedTuple):
    """A slot-neutral adapter with everything that fixes its function."""

    tensors: dict[str, Matrix]
    rank: int
    alpha: float
    rule: Rule
    base: str
    quantizer: str | None
    coordinates: str


def rule(axes: Axes) -> Rule:
    """The stack's scale rule."""
    return "rslora" if axes.scale == "alpha_over_sqrt_r" else "lora"


def trained(axes: Axes) -> tuple[str, ...]:
    """What the optimizer owns: LoRA-FA has no slot for A, DoRA has one for the magnitude."""
    factors = ("B",) if "lora_fa" in axes.optimizers else ("A", "B")
    return factors + (("magnitude",) if axes.coordinates == "dora" else ())


def weight(axes: Axes, base: Matrix, parameters: dict[str, Matrix], s: float) -> Matrix:
    """base + s B A, or its rows normalised to the magnitudes."""
    U = effective(base, parameters["A"], parameters["B"], s)
    return effective_weight(U, parameters["magnitude"][0]) if axes.coordinates == "dora" else U


def started(fixture: LifecycleFixture, axes: Axes) -> tuple[Matrix, Matrix, dict[str, Matrix]]:
    """(training base, runtime base, parameters): DoRA starts from B = 0, PiSSA from principal factors."""
    runtime = rounded(fixture.W0, fixture.step) if axes.base == "nf4" else fixture.W0
    s = scaling(fixture.alpha, len(fixture.A), rule(axes))
    if axes.initializer == "pissa":
        B, A = spectral_factors(runtime, len(fixture.A), s)
        return subtract(runtime, scale(s, matmul(B, A))), runtime, {"A": A, "B": B}
    if axes.coordinates == "dora":
        B0 = zeros(len(fixture.B), len(fixture.A))
        return runtime, runtime, {"A": fixture.A, "B": B0, "magnitude": (row_norms(runtime),)}
    return runtime, runtime, {"A": fixture.A, "B": fixture.B}


def adjoint(batch: Batch) -> Matrix:
    """dL/dW_eff = G^T X for L = <G, X W_eff^T>."""
    return matmul(transpose(batch.G), batch.X)


def gradients(run: Run, state: State, batch: Batch, norm: str) -> dict[str, Matrix]:
    """Raw gradients of A, B and the magnitude; `norm` is the full or the detached normalization adjoint."""
    A, B, grad = state.parameters["A"], state.parameters["B"], adjoint(batch)
    found: dict[str, Matrix] = {}
    if run.axes.coordinates == "dora":
        U, m = effective(run.base, A, B, run.s), state.parameters["magnitude"][0]
        grad_m, full = full_backward(U, m, grad)
        found["magnitude"] = (grad_m,)
        grad = full if norm == "full" else detached_backward(U, m, grad)
    found["A"] = scale(run.s, matmul(transpose(B), grad))
    found["B"] = scale(run.s, matmul(grad, transpose(A)))
    return {name: found[name] for name in trained(run.axes)}


def stepped(fixture: LifecycleFixture, run: Run, state: State, batch: Batch) -> State:
    """One AdamW step under the stack's own training rule."""
    grads = gradients(run, state, batch, fixture.norm_backward)
    if "lora_fa" in run.axes.optimizers and fixture.frozen_factor_gradient == "corrected":
        grads["B"] = corrected(grads["B"], inverse(gram(state.parameters["A"])), run.s)
    g, a = fixture.groups, fixture.adam
    groups = {"A": g.A, "B": g.B, "magnitude": g.magnitude}
    rates = {name: Group(group.eta, group.decay) for name, group in groups.items()}
    return update(state, grads, rates, Adam(a.beta1, a.beta2, a.epsilon))


def train(fixture: LifecycleFixture, axes: Axes) -> Run:
    """Two uninterrupted updates."""
    base, runtime, parameters = started(fixture, axes)
    s = scaling(fixture.alpha, len(fixture.A), rule(axes))
    begun = start(parameters, trained(axes))
    run = Run(axes, s, base, runtime, begun, begun, begun)
    first = stepped(fixture, run, begun, fixture.batches[0])
    return run._replace(first=first, second=stepped(fixture, run, first, fixture.batches[1]))


def payload(base: Matrix, state: State) -> bytes:
    """Base, parameters, moments and step as JSON, which keeps every float64."""
    return json.dumps({"base": base, **state._asdict()}, sort_keys=True).encode()


def state_hash(base: Matrix, state: State) -> str:
    """Identity of an exact-resume payload."""
    return blob_digest(payload(base, state))


def _frozen(rows: list[list[float]]) -> Matrix:
    return tuple(tuple(row) for row in rows)


def resumed(fixture: LifecycleFixture, run: Run) -> State:
    """P3: reload P1 from its payload and apply the same second update."""
    document = json.loads(payload(run.base, run.first))
    named = {part: {n: _frozen(rows) for n, rows in document[part].items()} for part in ("parameters", "m", "v")}
    state = State(named["parameters"], named["m"], named["v"], document["step"])
    if fixture.resume == "parameters_only":
        state = start(named["parameters"], trained(run.axes))
    return stepped(fixture, run._replace(base=_frozen(document["base"])), state, fixture.batches[1])


STEMS = {"A": "lora_A", "B": "lora_B", "magnitude": "lora_magnitude_vector"}


def export(fixture: LifecycleFixture, run: Run) -> Portable:
    """P4: inference parameters without moments or slot; PiSSA as trained minus initial at rank 2r."""
    tensors, rank, alpha = dict(run.second.parameters), len(fixture.A), fixture.alpha
    if run.axes.artifact == "converted":
        initial = run.begun.parameters
        tensors["A"] = vstack(tensors["A"], scale(-1.0, initial["A"]))
        tensors["B"] = hstack(tensors["B"], initial["B"])
        converted = convert(rank, alpha, rule(run.axes))[0]
        rank, alpha = converted.rank, converted.alpha if fixture.portable_scale == "converted" else alpha
    keyed = {f"{fixture.names.module}.{STEMS[name]}.weight": tensor for name, tensor in tensors.items()}
    quantized, n = run.axes.base == "nf4", fixture.names
    base, quantizer = (n.quantized_base, n.quantizer) if quantized else (n.dense_base, None)
    return Portable(keyed, rank, alpha, rule(run.axes), base, quantizer, run.axes.coordinates)


def local(portable: Portable, names: Names, slot: str) -> dict[str, Matrix]:
    """Portable keys under a runtime prefix and slot."""
    stems = {key: key.removesuffix(".weight") for key in portable.tensors}
    return {f"{names.prefix}.{stems[key]}.{slot}.weight": tensor for key, tensor in portable.tensors.items()}


def reload(portable: Portable, names: Names, axes: Axes, base: Matrix) -> Matrix:
    """The effective weight rebuilt from the translated tensors alone; a missing or foreign tensor is refused."""
    state = local(portable, names, names.reload_slot)
    prefix, suffix = f"{names.prefix}.{names.module}.", f".{names.reload_slot}.weight"
    short = {key.removeprefix(prefix).removesuffix(suffix): tensor for key, tensor in state.items()}
    needed = [stem for name, stem in STEMS.items() if name != "magnitude" or axes.coordinates == "dora"]
    if sorted(short) != sorted(needed):
        raise FixtureRefusedError("portable adapter", sorted(short), f"the tensors {sorted(needed)}")
    parameters = {name: short[stem] for name, stem in STEMS.items() if stem in short}
    return weight(axes, base, parameters, scaling(portable.alpha, portable.rank, portable.rule))


def rolled_back(fixture: LifecycleFixture, run: Run, dense: Matrix) -> Matrix:
    """P6: the immutable runtime base; subtracting the delta from the release is the trap."""
    if fixture.rollback == "immutable_base":
        return run.runtime_base
    p = run.second.parameters
    return subtract(dense, scale(run.s, matmul(p["B"], p["A"])))
