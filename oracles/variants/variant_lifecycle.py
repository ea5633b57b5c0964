"""Lifecycle: four stacks from manifest to rollback, through P0 to P6 (V 0x0A).

Shapes as in `variant_lifecycle_state`.
"""

from collections.abc import Iterator

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    distance,
    inner,
    matmul,
    max_abs,
    require_length,
    require_shape,
    row_norms,
    scale,
    subtract,
)
from oracles.model import Oracle
from oracles.variants.adamw import State
from oracles.variants.lora import output, rounded
from oracles.variants.variant_lifecycle_state import (
    STEMS,
    LifecycleFixture,
    Portable,
    Run,
    adjoint,
    export,
    gradients,
    local,
    reload,
    resumed,
    rolled_back,
    state_hash,
    train,
    weight,
)
from oracles.variants.variant_stacks_rules import (
    COORDINATES,
    REFUSING,
    Axes,
    NamedStack,
    mechanisms,
    outcome,
    vector,
)

TRACE, QLORA, QDORA, FROZEN, PISSA = "V 0x0AB", "V 0x0AC", "V 0x0AD", "V 0x0AE", "V 0x0AF"
NAMESPACE, EXPORT, ROLLBACK, BOUNDED, MEASURED = "V 0x0AG", "V 0x0AH", "V 0x0AI", "V 0x0AJ", "V 0x0AK"


def stop(axes: Axes) -> str:
    """The stage that stops a stack: its first refusing coordinate, else its first unverified one."""
    statuses = vector(axes)
    refusing = [i for i, status in enumerate(statuses) if status in REFUSING]
    open_ones = [i for i, status in enumerate(statuses) if status == "unverified"]
    if not (found := refusing or open_ones):
        return "none"
    stage = STAGES[COORDINATES[found[0]]]
    return "optimizer_construction" if (stage, statuses[found[0]]) == ("configuration", "conflict") else stage


def names_checks(name: str, stacks: tuple[NamedStack, ...], expected: dict[str, str]) -> Iterator[Check]:
    """The stacks of one list and what each changes; no transaction is defined for others."""
    found = tuple((stack.name, " ".join(mechanisms(stack.axes))) for stack in stacks)
    yield equal(f"{name} stacks", found, tuple(expected.items()), source=MEASURED)
    if found != tuple(expected.items()):
        raise FixtureRefusedError(f"{name} stacks", found, f"the stacks {', '.join(expected)}")


def start_checks(fixture: LifecycleFixture, runs: tuple[Run, ...]) -> Iterator[Check]:
    """P0: admitted stacks, base values, scales and initial functions."""
    verdicts = tuple(outcome(vector(run.axes)) for run in runs)
    yield equal("the four are admitted", verdicts, ("admitted",) * 4, source=MEASURED)
    Wq = rounded(fixture.W0, fixture.step)
    yield equal("W_q", Wq, BASE, source=QLORA)
    yield close("W0 - W_q", subtract(fixture.W0, Wq), RESIDUAL, source=QLORA, digits=12)
    yield close("scales", tuple(run.s for run in runs), SCALES, source=QLORA, digits=6)
    _, qdora, _, pissa = runs
    yield equal("QDoRA starts at W_q", distance(qdora.weight(qdora.begun), Wq), 0.0, source=QDORA)
    yield equal("QDoRA initial magnitude", row_norms(Wq), (2.5, 1.5, 1.5), source=QDORA)
    error = distance(pissa.weight(pissa.begun), fixture.W0)
    yield below("PiSSA starts at W0", error, 1e-14, source=PISSA)
    yield above("its residual alone is another base", distance(pissa.base, fixture.W0), 0.5, source=PISSA)


def trace_checks(fixture: LifecycleFixture, runs: tuple[Run, ...]) -> Iterator[Check]:
    """Adjoints of both batches, first gradients, moments and updates of the groups."""
    qlora, qdora, frozen, _ = runs
    yield equal("adjoints G^T X", tuple(map(adjoint, fixture.batches)), ADJOINTS, source=TRACE)
    first = gradients(qlora, qlora.begun, fixture.batches[0], "full")
    unit = 1.0 / qlora.s
    yield close("dA / s", scale(unit, first["A"]), FIRST_A, source=TRACE, digits=12)
    yield close("dB / s", scale(unit, first["B"]), FIRST_B, source=TRACE, digits=12)
    yield close("m_B / s", scale(unit, qlora.first.m["B"]), scale(0.1, FIRST_B), source=TRACE, digits=12)
    yield close("v_B[0][0] / s^2", qlora.first.v["B"][0][0] * unit**2, 0.003515625, source=TRACE, digits=12)
    yield close("A after one update", qlora.first.parameters["A"], UPDATED_A, source=TRACE, digits=8)
    yield close("B after one update", qlora.first.parameters["B"], UPDATED_B, source=TRACE, digits=8)
    magnitude = qdora.first.parameters["magnitude"][0]
    yield close("magnitude after one update", magnitude, (2.505, 1.505, 1.495), source=QDORA, digits=8)
    yield close("detached m_B of QDoRA", qdora.first.m["B"], scale(0.2, FIRST_B), source=QDORA, digits=12)
    projected = matmul(scale(frozen.s / 0.1, frozen.first.m["B"]), fixture.A)
    yield close("dense update of LoRA-FA", projected, FROZEN_UPDATE, source=FROZEN, digits=12)
    keys = tuple(tuple(run.first.m) for run in runs)
    yield equal("optimizer keys at P1", keys, OPTIMIZER_KEYS, source=FROZEN)


def difference_checks(fixture: LifecycleFixture, runs: tuple[Run, ...]) -> Iterator[Check]:
    """The full forward derivative at P1 of every stack, and how far the detached adjoint is from it."""
    for stack, run in zip(fixture.stacks, runs, strict=True):
        batch, state = fixture.batches[1], run.first
        grads = gradients(run, state, batch, "full")

        def loss(point: Point, run: Run = run, state: State = state) -> float:
            moved = weight(run.axes, run.base, {**state.parameters, **point}, run.s)
            return inner(fixture.batches[1].G, output(fixture.batches[1].X, moved))

        held = compare(loss, {name: state.parameters[name] for name in grads}, grads)
        yield gradient(f"full gradients of {stack.name}", held, 6.54e-10, source=MEASURED)
    qdora = runs[1]
    full, detached = (gradients(qdora, qdora.first, fixture.batches[1], norm) for norm in ("full", "detached"))
    gap = max(distance(full[name], detached[name]) for name in full)
    yield above("detached adjoint of QDoRA", gap, 0.1, source=QDORA)
    same = distance(full["magnitude"], detached["magnitude"])
    yield equal("its magnitude gradient is the full one", same, 0.0, source=QDORA)


def resume_checks(fixture: LifecycleFixture, runs: tuple[Run, ...]) -> Iterator[Check]:
    """P2 against P3: one identity, moments included."""
    for stack, run in zip(fixture.stacks, runs, strict=True):
        same = state_hash(run.base, resumed(fixture, run)) == state_hash(run.base, run.second)
        yield equal(f"direct and resumed hashes of {stack.name} agree", same, True, source=TRACE)
    moved = min(max_abs(subtract(r.second.parameters["B"], r.first.parameters["B"])) for r in runs)
    yield above("the second update moves B", moved, 1e-3, source=TRACE)
    still = distance(runs[2].second.parameters["A"], fixture.A)
    yield equal("frozen A never moves", still, 0.0, source=FROZEN)


def portable_checks(
    fixture: LifecycleFixture, runs: tuple[Run, ...], portables: tuple[Portable, ...]
) -> Iterator[Check]:
    """P4: slot-neutral keys, their translation, the identities they bind, and the reloaded function."""
    qlora, qdora, frozen, _ = portables
    yield equal("portable keys of QLoRA+rsLoRA", tuple(qlora.tensors), PORTABLE_KEYS[:2], source=QLORA)
    yield equal("portable keys of QDoRA", tuple(qdora.tensors), PORTABLE_KEYS, source=QDORA)
    yield equal("portable keys of LoRA-FA+rsLoRA", tuple(frozen.tensors), PORTABLE_KEYS[:2], source=FROZEN)
    n = fixture.names
    yield equal("training keys", tuple(local(qdora, n, n.training_slot)), TRAINING_KEYS, source=NAMESPACE)
    yield equal("reloaded keys", tuple(local(qdora, n, n.reload_slot)), RELOADED_KEYS, source=NAMESPACE)
    neutral = all(n.training_slot not in key for p in portables for key in p.tensors)
    yield equal("portable keys are slot-neutral", neutral, True, source=NAMESPACE)
    bound = tuple((p.base, p.quantizer) for p in portables)
    yield equal("bases and quantizers", bound, BOUND, source=EXPORT)
    ranks = tuple((len(p.tensors[f"{n.module}.{STEMS['A']}.weight"]), p.rank) for p in portables)
    yield equal("portable ranks", ranks, ((2, 2), (2, 2), (2, 2), (4, 4)), source=PISSA)
    yield close("portable alphas", tuple(p.alpha for p in portables), (4.0, 4.0, 4.0, 5.656854), source=PISSA, digits=6)
    X = fixture.batches[1].X
    for stack, run, portable in zip(fixture.stacks, runs, portables, strict=True):
        found, expected = reload(portable, n, run.axes, run.runtime_base), run.weight(run.second)
        error = max(distance(found, expected), distance(output(X, found), output(X, expected)))
        yield below(f"reload error of {stack.name}", error, 1e-14, source=MEASURED)
    lost = (refuses_without(fixture, runs[2], frozen, "A"), refuses_without(fixture, runs[1], qdora, "magnitude"))
    yield equal("refused without frozen A, without magnitude", lost, (True, True), source=EXPORT)
    additive = runs[1].axes.model_copy(update={"coordinates": "additive"})
    plain = reload(without(qdora, fixture, "magnitude"), n, additive, runs[1].runtime_base)
    gap = distance(plain, runs[1].weight(runs[1].second))
    yield above("QDoRA read as LoRA is another function", gap, 1e-2, source=QDORA)


def without(portable: Portable, fixture: LifecycleFixture, name: str) -> Portable:
    """The adapter with one tensor dropped."""
    key = f"{fixture.names.module}.{STEMS[name]}.weight"
    return portable._replace(tensors={k: tensor for k, tensor in portable.tensors.items() if k != key})


def refuses_without(fixture: LifecycleFixture, run: Run, portable: Portable, name: str) -> bool:
    """Whether reload refuses the adapter once one tensor is dropped."""
    try:
        reload(without(portable, fixture, name), fixture.names, run.axes, run.runtime_base)
    except FixtureRefusedError:
        return True
    return False


def release_checks(
    fixture: LifecycleFixture, runs: tuple[Run, ...], portables: tuple[Portable, ...]
) -> Iterator[Check]:
    """P5 and P6: dense parity, the component inventory, and rollback by identity."""
    X, errors, inventory = fixture.batches[1].X, [], []
    for stack, run, portable in zip(fixture.stacks, runs, portables, strict=True):
        released = run if fixture.release_from == "second_update" else run._replace(second=run.first)
        dense = reload(export(fixture, released), fixture.names, run.axes, run.runtime_base)
        error = distance(output(X, dense), output(X, run.weight(run.second)))
        yield below(f"dense release error of {stack.name}", error, 1e-14, source=MEASURED)
        live = (("portable", len(portable.tensors)),) if run.axes.artifact == "converted" else ()
        inventory.append((*live, ("dense", 0)))
        immutable = BASE if run.axes.base == "nf4" else fixture.W0
        errors.append(distance(rolled_back(fixture, run, dense), immutable))
    yield equal("release components and their adapter keys", tuple(inventory), INVENTORY, source=PISSA)
    bases = tuple(fixture.names.quantized_base if r.axes.base == "nf4" else fixture.names.dense_base for r in runs)
    yield equal("rollback bases", bases, tuple(base for base, _ in BOUND), source=ROLLBACK)
    yield equal("rollback errors", tuple(errors), (0.0, 0.0, 0.0, 0.0), source=ROLLBACK)
    uses = fixture.rollback == "arithmetic_unmerge"
    yield equal("uses_arithmetic_unmerge", uses, False, source=ROLLBACK)
    qdora = fixture.model_copy(update={"rollback": "arithmetic_unmerge"})
    left = distance(rolled_back(qdora, runs[1], runs[1].weight(runs[1].second)), runs[1].runtime_base)
    yield above("arithmetic unmerge of QDoRA misses its base", left, 1e-3, source=ROLLBACK)


def bounded_checks(fixture: LifecycleFixture) -> Iterator[Check]:
    """Six stacks stop where their first refusing, or unverified, coordinate lies."""
    for stack in fixture.bounded:
        yield equal(f"{stack.name} stops at", stop(stack.axes), STOPS[stack.name], source=BOUNDED)
    yield equal("no stage stops the four", {stop(s.axes) for s in fixture.stacks} == {"none"}, True, source=BOUNDED)


def evaluate(fixture: LifecycleFixture) -> Iterator[Check]:
    """Every check of V 0x0A, in the order of its subsections."""
    require_length("stacks", fixture.stacks, len(STACKS))
    require_length("bounded", fixture.bounded, len(BOUNDED_STACKS))
    require_length("batches", fixture.batches, 2)
    require_shape("W0", fixture.W0, (3, 3))
    require_shape("A", fixture.A, (2, 3))
    require_shape("B", fixture.B, (3, 2))
    for batch in fixture.batches:
        require_shape("X", batch.X, (2, 3))
        require_shape("G", batch.G, (2, 3))
    yield from names_checks("selected", fixture.stacks, STACKS)
    yield from names_checks("bounded", fixture.bounded, BOUNDED_STACKS)
    runs = tuple(train(fixture, stack.axes) for stack in fixture.stacks)
    portables = tuple(export(fixture, run) for run in runs)
    yield from start_checks(fixture, runs)
    yield from trace_checks(fixture, runs)
    yield from difference_checks(fixture, runs)
    yield from resume_checks(fixture, runs)
    yield from portable_checks(fixture, runs, portables)
    yield from release_checks(fixture, runs, portables)
    yield from bounded_checks(fixture)


STAGES = {
    "algebra": "algebra",
    "config": "configuration",
    "forward": "forward",
    "backward": "backward_derivation",
    "artifact": "portable_export",
    "merge": "merge",
    "runtime": "runtime",
    "evidence": "evidence",
}
STACKS = {
    "QLoRA+rsLoRA": "nf4 alpha_over_sqrt_r",
    "QDoRA": "nf4 dora",
    "LoRA-FA+rsLoRA": "alpha_over_sqrt_r lora_fa",
    "PiSSA+rsLoRA": "alpha_over_sqrt_r pissa converted",
}
BOUNDED_STACKS = {
    "AdaLoRA+DoRA": "adalora dora",
    "AdaLoRA+LoftQ": "nf4 adalora loftq",
    "LoRA+&LoRA-FA": "lora_plus lora_fa",
    "LoRA-FA+DoRA": "dora lora_fa",
    "PiSSA+patterned-rsLoRA": "patterned alpha_over_sqrt_r pissa converted",
    "QAdaLoRA": "nf4 adalora",
}
STOPS = {
    "AdaLoRA+DoRA": "configuration",
    "AdaLoRA+LoftQ": "configuration",
    "LoRA+&LoRA-FA": "optimizer_construction",
    "LoRA-FA+DoRA": "backward_derivation",
    "PiSSA+patterned-rsLoRA": "portable_export",
    "QAdaLoRA": "merge",
}
SCALES = (2.828427, 2.0, 2.828427, 2.828427)
BASE: Matrix = ((1.5, 2.0, 0.0), (1.0, -1.0, 0.5), (0.5, 1.0, 1.0))
RESIDUAL: Matrix = ((0.1, -0.2, 0.1), (-0.1, 0.1, 0.2), (0.2, 0.0, -0.1))
ADJOINTS: tuple[Matrix, ...] = (
    ((0.75, -2.0, 1.0), (1.0, 1.5, -0.75), (0.0, 5.0, -2.5)),
    ((0.0, 1.0, 0.0), (-3.0, 1.0, 1.5), (2.5, -0.5, -1.25)),
)
FIRST_A: Matrix = ((1.375, -2.0, 1.0), (-0.25, 4.0, -2.0))
FIRST_B: Matrix = ((1.875, -2.3125), (-0.625, 2.125), (-3.75, 6.25))
UPDATED_A: Matrix = ((0.4895, -0.23975, 0.989), (0.25975, 0.989, -0.4895))
UPDATED_B: Matrix = ((0.4795, -0.979), (1.019, 0.4795), (-0.4795, 0.22975))
"""Bias correction makes the first step eta (sign g + lambda theta)."""
FROZEN_UPDATE: Matrix = (
    (43.0 / 1364.0, -542.0 / 341.0, 997.0 / 682.0),
    (437.0 / 682.0, 1163.0 / 682.0, -177.0 / 341.0),
    (245.0 / 341.0, 1565.0 / 341.0, -1010.0 / 341.0),
)
"""The first adjoint times the projector onto the rows of A, in exact fractions."""
OPTIMIZER_KEYS = (("A", "B"), ("A", "B", "magnitude"), ("B",), ("A", "B"))
PORTABLE_KEYS = ("proj.lora_A.weight", "proj.lora_B.weight", "proj.lora_magnitude_vector.weight")
TRAINING_KEYS = (
    "base_model.model.proj.lora_A.default.weight",
    "base_model.model.proj.lora_B.default.weight",
    "base_model.model.proj.lora_magnitude_vector.default.weight",
)
RELOADED_KEYS = (
    "base_model.model.proj.lora_A.task_blue.weight",
    "base_model.model.proj.lora_B.task_blue.weight",
    "base_model.model.proj.lora_magnitude_vector.task_blue.weight",
)
BOUND = (
    ("nf4_payload_v1", "nf4_block64_double_quant_v1"),
    ("nf4_payload_v1", "nf4_block64_double_quant_v1"),
    ("dense_w0_v1", None),
    ("dense_w0_v1", None),
)
INVENTORY = ((("dense", 0),), (("dense", 0),), (("dense", 0),), (("portable", 2), ("dense", 0)))

ORACLE = Oracle(
    name="variant_lifecycle",
    document="V",
    sections=("0x0AB", "0x0AC", "0x0AD", "0x0AE", "0x0AF", "0x0AG", "0x0AH", "0x0AI", "0x0AJ", "0x0AK"),
    module=__name__,
    fixture=LifecycleFixture,
    evaluate=evaluate,
    proves=(
        "four stacks from manifest through two AdamW updates, exact resume, portable reload and dense release",
        "PiSSA's conversion, QDoRA's detached and full adjoints, and the frozen factor that has to travel",
        "rollback by identity, and the stage at which each of six bounded stacks stops",
    ),
    does_not_prove=(
        "resume across kernels, shards, schedulers or random streams",
        "a low-bit release, or the printed maxima, which belong to tensors the document does not print",
    ),
    own=("W0", "step", "A", "B", "batches", "adam", "groups"),
    document_mutations=95,
)
