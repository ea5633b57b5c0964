"""Dense-to-sparse transition of a multimodal model: every materialised row routes, admission decides (C 0x07).

Shapes and operators stand in `multimodal_stage_operators`. Rows and experts are counted from 0.
"""

from collections.abc import Iterator
from itertools import pairwise

from oracles.checks import Check, above, below, close, equal, gradient
from oracles.conditional.multimodal_stage_operators import (
    EXPERTS,
    ROWS,
    D,
    MultimodalFixture,
    Routes,
    auxiliary_loss,
    capacity,
    contingency,
    dense_ffn,
    flat_kinds,
    gate_gradient,
    modality,
    moe,
    noisy,
    route,
    routed_rows,
)
from oracles.differences import Point, compare
from oracles.errors import FixtureRefusedError
from oracles.matrix import (
    Matrix,
    add,
    distance,
    inner,
    max_abs,
    outer,
    require_length,
    require_shape,
    shape,
    softmax_backward,
    subtract,
    zeros,
)
from oracles.model import Oracle

MASKS, STAGES, CONTINUITY, LOSSES = "C 0x07B", "C 0x07C", "C 0x07D", "C 0x07E"
ADMISSION, LEDGER, MODALITY, TRACE = "C 0x07F", "C 0x07G", "C 0x07H", "C 0x07L"


def relabelled(kind: str) -> str:
    """The other content modality; padding stays padding."""
    return {"image": "text_prompt", "pad": "pad"}.get(kind, "image")


def mask_checks(fixture: MultimodalFixture) -> Iterator[Check]:
    """Three masks over one rectangle, and the population the gate really sees."""
    kinds = flat_kinds(fixture)
    counts = tuple([modality(kind) for kind in kinds].count(m) for m in ("image", "text", "pad"))
    yield equal("row kinds", kinds, KINDS, source=TRACE)
    yield equal("image, text and padding rows", counts, (3, 6, 3), source=TRACE)
    yield equal("valid content rows", sum(kind != "pad" for kind in kinds), 9, source=TRACE)
    yield equal("direct target rows", kinds.count("text_target"), 4, source=MASKS)
    yield equal("materialised router rows", len(routed_rows(fixture)), 12, source=TRACE)


def stage_checks(fixture: MultimodalFixture) -> Iterator[Check]:
    """Checkpoint lineage; the order of the setup calls decides whether the projector trains in Stage III."""
    lineage = tuple((stage.name, stage.parent, stage.output) for stage in fixture.stages)
    yield equal("stage, parent and output checkpoint", lineage, LINEAGE, source=STAGES)
    chained = tuple(before.output == after.parent for before, after in pairwise(fixture.stages))
    yield equal("each stage starts from the one before", chained, (True, True), source=STAGES)
    yield equal(
        "trainable by stage, paper", tuple(stage.trainable for stage in fixture.stages), TRAINABLE, source=STAGES
    )
    trainable = {"attention", "fc1", "fc2", "projector", "wg"}
    for call in fixture.setup_calls:
        moe_only = call == "initialize_moe_modules"
        trainable = trainable & {"fc1", "fc2", "wg"} if moe_only else trainable | {"projector"}
    yield equal(
        "Stage III trainable, pinned code", tuple(sorted(trainable)), ("fc1", "fc2", "projector", "wg"), source=STAGES
    )
    yield equal(
        "trainable beyond the paper figure",
        tuple(sorted(trainable - {"fc1", "fc2", "wg"})),
        ("projector",),
        source=STAGES,
    )
    yield equal("stored gate is E x d", shape(fixture.W_g), (EXPERTS, D), source=CONTINUITY)


def route_checks(fixture: MultimodalFixture, main: Routes) -> Iterator[Check]:
    """Logits, noise, both choices and the requested table of our rows."""
    yield close("gate logits", main.z, LOGITS, source=CONTINUITY, digits=3, tolerance=1e-12)
    yield equal("first choices", main.first, FIRST, source=CONTINUITY)
    yield close("noisy scores", noisy(fixture, main.z), NOISY, source=CONTINUITY, digits=3, tolerance=1e-12)
    yield equal("second choices", main.second, SECOND, source=CONTINUITY)
    yield close("dense FFN of every row", dense_ffn(fixture), DENSE, source=CONTINUITY, digits=5, tolerance=1e-12)
    yield equal("requested edges by modality", contingency(main, flat_kinds(fixture)), CONTINGENCY, source=MODALITY)


def capacity_checks(fixture: MultimodalFixture, main: Routes, stress: Routes) -> Iterator[Check]:
    """The two columns of C 0x07L: the ample and the tight capacity."""
    dense, width = dense_ffn(fixture), D * fixture.activation_bytes
    T = len(main.z)
    for name, routes, factor, printed in (
        ("cf 1.5", main, fixture.factors.train, (9, 24, 24, 0, 96, 192)),
        ("cf 0.4", stress, fixture.factors.stress, (3, 24, 12, 3, 48, 96)),
    ):
        executed = sum(sum(pair) for pair in routes.admitted)
        lost = sum(not any(pair) for pair in routes.admitted)
        found = (capacity(fixture, T, factor), 2 * T, executed, lost, executed * width, 2 * executed * width)
        for label, value, expected in zip(COLUMNS, found, printed, strict=True):
            yield equal(f"{name}: {label}", value, expected, source=TRACE)
    factors = (fixture.factors.train, fixture.factors.stress)
    yield equal("experts and capacity factors", (EXPERTS, *factors), (4, 1.5, 0.4), source=TRACE)
    lost_rows = tuple(t for t, pair in enumerate(stress.admitted) if not any(pair))
    yield equal("rows that lose both routes", lost_rows, (6, 9, 11), source=ADMISSION)
    yield from edge_checks(stress)
    errors = tuple(distance(moe(fixture, routes, (0.0,) * EXPERTS), dense) for routes in (main, stress))
    yield below("cf 1.5: clone error", errors[0], 1e-12, source=TRACE)
    yield close("cf 0.4: clone error", errors[1], 1.75, source=TRACE, digits=2, tolerance=1e-12)
    kept = [t for t in range(T) if t not in lost_rows]
    cloned = moe(fixture, stress, (0.0,) * EXPERTS)
    survivors = max(distance((cloned[t],), (dense[t],)) for t in kept)
    yield below("one survivor is enough for continuity", survivors, 1e-12, source=CONTINUITY)
    evaluated = capacity(fixture, T, fixture.factors.evaluation)
    yield equal("evaluation capacity differs from training", evaluated, 12, source=ADMISSION)


def edge_checks(stress: Routes) -> Iterator[Check]:
    """Admission edge by edge: row order, and second choices behind all first choices."""
    firsts = tuple(t for t, (one, _) in enumerate(stress.admitted) if one)
    seconds = tuple(t for t, (_, two) in enumerate(stress.admitted) if two)
    yield equal("first choices admitted under stress", firsts, (0, 1, 2, 3, 4, 5, 7, 8, 10), source=ADMISSION)
    yield equal("second choices admitted under stress", seconds, (0, 1, 2), source=ADMISSION)


def loss_checks(fixture: MultimodalFixture, main: Routes) -> Iterator[Check]:
    """The auxiliary population, and gate gradients with the discrete state held."""
    T = len(main.p)
    load = tuple(main.first.count(e) for e in range(EXPERTS))
    yield equal("auxiliary counts: first choices of all rows", (load, T), ((5, 4, 2, 1), 12), source=LOSSES)
    yield close("auxiliary loss", auxiliary_loss(main), AUXILIARY, source=LOSSES, digits=12)
    kinds, factor = flat_kinds(fixture), fixture.factors.train

    def at(point: Point) -> Routes:
        return route(fixture, point["W_g"], factor, kinds)

    fractions = tuple(EXPERTS / T * n / T for n in load)
    grad = zeros(EXPERTS, D)
    for t, p in enumerate(main.p):
        grad = add(grad, outer(softmax_backward(p, fractions), fixture.hidden[t]))
    auxiliary = compare(lambda q: auxiliary_loss(at(q)), {"W_g": fixture.W_g}, {"W_g": grad})
    yield gradient("auxiliary gradient in W_g", auxiliary, 1e-9, source=LOSSES)

    def task(point: Point) -> float:
        return inner(fixture.hidden, moe(fixture, at(point), fixture.drift))

    yield close("task loss with drifted experts", task({"W_g": fixture.W_g}), TASK, source=LOSSES, digits=12)
    expected = gate_gradient(fixture, main, fixture.hidden)
    difference = compare(task, {"W_g": fixture.W_g}, {"W_g": expected})
    yield gradient("task gradient through the survivors", difference, 1e-9, source=CONTINUITY)
    yield above("drifted experts train the gate", max_abs(expected), 1e-2, source=CONTINUITY)


def modality_checks(fixture: MultimodalFixture, main: Routes) -> Iterator[Check]:
    """Labels change the table, not the route; equal totals hide opposite conditionals."""
    kinds = flat_kinds(fixture)
    other = tuple(relabelled(kind) for kind in kinds)
    again = route(fixture, fixture.W_g, fixture.factors.train, other)
    outputs = (moe(fixture, main, fixture.drift), moe(fixture, again, fixture.drift))
    yield equal("relabelling changes no output", max_abs(subtract(*outputs)), 0.0, source=TRACE)
    swapped = (CONTINGENCY[1], CONTINGENCY[0], CONTINGENCY[2])
    yield equal("relabelling changes the table", contingency(again, other), swapped, source=TRACE)
    specialised, mixed = fixture.contingency
    totals = tuple(tuple(map(sum, zip(*table, strict=True))) for table in fixture.contingency)
    yield equal("expert totals", totals, ((2, 2), (2, 2)), source=MODALITY)
    if min(min(total) for total in totals) <= 0:
        raise FixtureRefusedError("contingency", totals, "positive expert totals")
    yield equal("P(m | e), specialised", conditional(specialised), ((1.0, 0.0), (0.0, 1.0)), source=MODALITY)
    yield equal("P(m | e), mixed", conditional(mixed), ((0.5, 0.5), (0.5, 0.5)), source=MODALITY)


def conditional(table: tuple[tuple[int, int], tuple[int, int]]) -> Matrix:
    """P(m | e) = C_m,e / sum_n C_n,e."""
    totals = tuple(a + b for a, b in zip(*table, strict=True))
    return tuple(tuple(x / total for x, total in zip(row, totals, strict=True)) for row in table)


def ledger_checks(fixture: MultimodalFixture) -> Iterator[Check]:
    """Resident and active parameters of one converted layer."""
    ffn = sum(rows * columns for rows, columns in (shape(fixture.W_1), shape(fixture.W_2)))
    yield equal("parameters of the dense FFN", ffn, 8, source=LEDGER)
    yield equal("resident parameters", EXPERTS * ffn + D * EXPERTS, 40, source=LEDGER)
    yield equal("active parameters a row", 2 * ffn + D * EXPERTS, 24, source=LEDGER)
    layers = fixture.converted_layers
    paper = layers * (EXPERTS * ffn + D * EXPERTS)
    trained = (layers, fixture.projector_parameters, paper, paper + fixture.projector_parameters)
    yield equal("L_M, projector, trained by paper and by code", trained, (2, 6, 80, 86), source=LEDGER)


def require_shapes(fixture: MultimodalFixture) -> None:
    """Twelve rows of width 2, four experts of width 2."""
    require_shape("hidden", fixture.hidden, (ROWS, D))
    require_shape("W_g", fixture.W_g, (EXPERTS, D))
    require_shape("noise", fixture.noise, (ROWS, EXPERTS))
    require_shape("W_1", fixture.W_1, (D, D))
    require_shape("W_2", fixture.W_2, (D, D))
    require_length("drift", fixture.drift, EXPERTS)


def evaluate(fixture: MultimodalFixture) -> Iterator[Check]:
    """Every check of C 0x07, in the order of its subsections."""
    require_shapes(fixture)
    kinds, factors = flat_kinds(fixture), fixture.factors
    yield from mask_checks(fixture)
    yield from stage_checks(fixture)
    main, stress = (route(fixture, fixture.W_g, factor, kinds) for factor in (factors.train, factors.stress))
    yield from route_checks(fixture, main)
    yield from capacity_checks(fixture, main, stress)
    yield from loss_checks(fixture, main)
    yield from modality_checks(fixture, main)
    yield from ledger_checks(fixture)


LINEAGE = (
    ("align", "base", "aligned_projector"),
    ("dense_multimodal", "aligned_projector", "dense_lvlm"),
    ("sparse_moe", "dense_lvlm", "sparse_lvlm"),
)
TRAINABLE = (("projector",), ("projector", "language_model"), ("experts", "router"))
KINDS = (
    *("image", "image", "text_prompt", "text_target", "text_target", "pad"),
    *("image", "text_prompt", "text_target", "text_target", "pad", "pad"),
)
COLUMNS = (
    "capacity",
    "requested routes",
    "executed routes",
    "complete losses",
    "dispatch bytes",
    "round trip",
)
# Our rows: the choices were laid out by hand, the tables counted from them, the values evaluated independently.
FIRST = (0, 1, 0, 2, 0, 1, 0, 1, 3, 0, 2, 1)
SECOND = (2, 3, 3, 0, 2, 3, 1, 2, 2, 1, 3, 0)
CONTINGENCY = ((2, 2, 1, 1), (4, 2, 4, 2), (1, 2, 1, 2))
LOGITS: Matrix = (
    (2.025, 0.700, -1.925, -0.400),
    (0.600, 2.050, -0.200, -1.975),
    (1.450, -0.850, -1.650, 1.075),
    (-1.950, 0.800, 2.150, -1.100),
    (2.550, 1.250, -2.350, -0.875),
    (-0.925, 1.400, 1.225, -1.550),
    (2.975, -0.200, -3.075, 0.650),
    (-0.375, 2.450, 0.875, -2.525),
    (0.425, -1.450, -0.725, 1.525),
    (1.525, 0.650, -1.425, -0.425),
    (-1.525, -0.650, 1.425, 0.425),
    (0.575, 1.550, -0.275, -1.475),
)
NOISY: Matrix = (
    (2.585, 1.110, 3.045, 1.420),
    (1.970, 5.860, 1.470, 2.635),
    (5.720, -1.270, -1.830, 1.375),
    (2.840, 2.420, 4.910, -0.290),
    (5.240, 0.520, 0.960, 0.115),
    (-1.675, 5.610, 2.105, 3.200),
    (2.095, 2.490, -0.285, 0.010),
    (2.385, 4.250, 3.955, -1.405),
    (1.285, -1.110, 3.095, 1.955),
    (1.645, 2.260, 1.765, -0.815),
    (-0.595, 0.350, 5.425, 2.055),
    (4.705, 1.570, 0.745, 1.425),
)
DENSE: Matrix = (
    (1.06250, 0.31250),
    (0.28125, 1.12500),
    (1.00000, -0.50000),
    (0.00000, 0.00000),
    (1.28125, 0.62500),
    (0.12500, 0.50000),
    (1.75000, -0.31250),
    (0.28125, 1.12500),
    (0.62500, -0.31250),
    (0.78125, 0.31250),
    (0.00000, 0.00000),
    (0.21875, 0.87500),
)
AUXILIARY = 1.186343668340
TASK = 12.594708001505

ORACLE = Oracle(
    name="multimodal_stage",
    document="C",
    sections=("0x07B", "0x07C", "0x07D", "0x07E", "0x07F", "0x07G", "0x07H", "0x07L"),
    module=__name__,
    fixture=MultimodalFixture,
    evaluate=evaluate,
    proves=(
        "the pinned two choices, capacity locations and survivor weights over every materialised row",
        "cloned experts keep the dense function exactly where at least one route survives",
        "auxiliary and task gradients of the gate; modality is an observation, not an input",
    ),
    does_not_prove=(
        "that the public code ranks by priority, or that any capacity is a better one",
        "training of a multimodal model, a collective, a cache or a benchmark",
    ),
    own=(
        "hidden",
        "W_g",
        "noise",
        "W_1",
        "W_2",
        "drift",
        "factors.evaluation",
        "min_capacity",
        "activation_bytes",
        "converted_layers",
        "projector_parameters",
    ),
    document_mutations=36,
)
