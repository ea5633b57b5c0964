"""Two compositions of depth and expert routing: staged before attention, integrated with a no-op after it (C 0x06).

Shapes and operators stand in `mode_composition_operators`. Rows, experts and paths are counted from 0.
"""

from collections.abc import Iterator

from oracles.checks import Check, above, close, equal, gradient
from oracles.conditional.attention import scaled
from oracles.conditional.mode_composition_operators import (
    D_FF,
    D,
    E,
    Gates,
    Integrated,
    ModeFixture,
    S,
    Staged,
    integrated,
    integrated_backward,
    no_op_output,
    parameters,
    staged,
    staged_backward,
)
from oracles.differences import Point, compare
from oracles.matrix import (
    Matrix,
    Vector,
    distance,
    inner,
    max_abs,
    require_length,
    require_shape,
)
from oracles.model import Oracle

STAGED, BACKWARD = "C 0x06C", "C 0x06C.4"
INTEGRATED, NO_OP, ONE_ROUTER = "C 0x06D", "C 0x06D.1", "C 0x06D.2"
OUTCOMES, LOAD, STORED = "C 0x06E", "C 0x06F", "C 0x06G.1"
STAGED_MACS, INTEGRATED_MACS, PAYLOAD, TRACE = "C 0x06G.2", "C 0x06G.3", "C 0x06G.4", "C 0x06J"


def trace_checks(fixture: ModeFixture, nested: Staged, dense: Integrated) -> Iterator[Check]:
    """The four-token table: rows, positions, paths and K/V presence."""
    rest = tuple(i for i in range(S) if i not in nested.ids)
    yield equal("depth rows and skipped rows", (nested.ids, rest), ((1, 3), (0, 2)), source=TRACE)
    yield equal("candidate positions", fixture.positions, (10, 11, 12, 13), source=TRACE)
    yield equal("staged attention positions", tuple(fixture.positions[i] for i in nested.ids), (11, 13), source=TRACE)
    yield equal("expert candidates", (len(nested.routes), len(dense.routes)), (2, 4), source=TRACE)
    yield equal("staged expert ids", tuple(one.ids for one in nested.routes), ((1,), (1,)), source=TRACE)
    yield equal("integrated paths", tuple(one.ids[0] for one in dense.routes), PATHS, source=TRACE)
    yield equal(
        "staged K/V", tuple("present" if i in nested.ids else "absent" for i in range(S)), STAGED_KV, source=TRACE
    )
    yield equal("integrated K/V", tuple("present" for _ in dense.U), ("present",) * 4, source=TRACE)
    yield equal("S, d, C_D, E", (S, D, fixture.depth_capacity, E), (4, 2, 2, 2), source=TRACE)


def forward_checks(fixture: ModeFixture, nested: Staged, dense: Integrated) -> Iterator[Check]:
    """Outputs, exact identities, and the no-op as a zero delta."""
    yield close("staged Y", nested.Y, STAGED_OUTPUT, source=STAGED, digits=12)
    kept = tuple(nested.Y[i] == fixture.X[i] for i in (0, 2))
    yield equal("depth skip keeps the input", kept, (True, True), source=STAGED)
    yield equal("no-op row is its post-attention state", dense.Y[1] == dense.U[1], True, source=NO_OP)
    yield close("integrated Y", dense.Y, INTEGRATED_OUTPUT, source=INTEGRATED, digits=12)
    doubled = no_op_output(fixture.model_copy(update={"no_op": "identity_output"}), dense.U[1])
    yield equal("a full-output no-op gives 2u", doubled == scaled(2.0, dense.U[1]), True, source=NO_OP)
    yield above("attention moved the no-op row", distance((dense.U[1],), (fixture.X[1],)), 1e-2, source=OUTCOMES)


def backward_checks(fixture: ModeFixture, nested: Staged, dense: Integrated) -> Iterator[Check]:
    """Nested and integrated gradients against central differences, memberships held by their margins."""
    at = parameters(fixture)
    yield close(
        "staged and integrated <G, Y>",
        (inner(fixture.G, nested.Y), inner(fixture.G, dense.Y)),
        LOSSES,
        source=BACKWARD,
        digits=12,
    )
    inside = {name: value for name, value in at.items() if name != "R_I"}
    options: tuple[tuple[int, Gates], ...] = ((1, "full_softmax"), (2, "selected_softmax"))
    for k, gates in options:
        run = staged(fixture, at, k, gates)

        def loss(point: Point, k: int = k, gates: Gates = gates) -> float:
            return inner(fixture.G, staged(fixture, {**at, **point}, k, gates).Y)

        difference = compare(loss, inside, staged_backward(fixture, run, gates))
        yield gradient(f"staged top-{k} {gates}", difference, 1e-9, source=BACKWARD)
    alone = staged_backward(fixture, staged(fixture, at, 1, "selected_softmax"), "selected_softmax")
    yield equal("top-1 selected softmax trains no router", max_abs(alone["R_E"]), 0.0, source=ONE_ROUTER)
    grads, z_bar = integrated_backward(fixture, dense)
    paths = {name: value for name, value in at.items() if name in grads}
    difference = compare(lambda p: inner(fixture.G, integrated(fixture, {**at, **p}).Y), paths, grads)
    yield gradient("integrated paths", difference, 1e-9, source=ONE_ROUTER)
    yield equal("a no-op row sends no task gradient", z_bar[1], (0.0, 0.0, 0.0), source=ONE_ROUTER)
    yield above("a real row moves the no-op logit", abs(z_bar[0][E]), 1e-3, source=ONE_ROUTER)


def outcome_checks(fixture: ModeFixture, nested: Staged, dense: Integrated) -> Iterator[Check]:
    """Depth skip, no-op, overflow and an ordinary expert: cause, attention, K/V row, expert delta."""
    requested = tuple(one.ids[0] for one in nested.routes)
    admitted = tuple(requested[:u].count(e) < fixture.expert_capacity for u, e in enumerate(requested))
    yield equal("admitted under capacity 1", admitted, (True, False), source=OUTCOMES)
    table = (
        outcome(0 in nested.ids, None, executed=False),
        outcome(True, dense.routes[1].ids[0], executed=False),
        outcome(3 in nested.ids, requested[1], executed=admitted[1]),
        outcome(1 in nested.ids, requested[0], executed=admitted[0]),
    )
    yield equal("three residual-looking outcomes and an expert", table, OUTCOME_TABLE, source=OUTCOMES)
    yield equal("three causes stay distinct", len({row[0] for row in table[:3]}), 3, source=OUTCOMES)
    rows = fixture.depth_capacity if fixture.load_population == "selected_rows" else S
    load = tuple(requested.count(e) / (rows * fixture.k_experts) for e in range(E))
    yield equal("staged expert load", load, (0.0, 1.0), source=LOAD)
    yield equal("staged load denominator", rows * fixture.k_experts, 2, source=LOAD)
    yield equal("depth admission rate", fixture.depth_capacity / S, 0.5, source=LOAD)


def outcome(attended: bool, path: int | None, *, executed: bool) -> tuple[str, bool, str, str]:
    """(cause, attention executed, K/V row, expert delta) of one row."""
    if not attended:
        return "depth_skip", False, "absent", "none"
    if path == E:
        return "no_op", True, "present", "zero"
    return ("expert", True, "present", "executed") if executed else ("overflow", True, "present", "missing")


def ledger_checks(fixture: ModeFixture, dense: Integrated) -> Iterator[Check]:
    """Equal named parameters, unequal MACs, and the logical payload."""
    expert = 2 * D * D_FF
    parameters_staged = E * expert + D + E * D
    yield equal(
        "parameters, staged and integrated", (parameters_staged, E * expert + (E + 1) * D), (30, 30), source=STORED
    )
    yield equal("p_mlp d_ff", expert // D, 6, source=STORED)
    C, k = fixture.depth_capacity, fixture.k_experts
    nested = (S * D, 4 * C * D**2, 2 * C**2 * D, C * E * D, C * k * expert)
    yield equal("staged MACs by term", nested, (8, 32, 16, 8, 24), source=STAGED_MACS)
    yield equal("staged MACs", sum(nested), 88, source=STAGED_MACS)
    real = sum(one.ids[0] < E for one in dense.routes)
    yield equal("R_real", real, 3, source=INTEGRATED_MACS)
    full = (4 * S * D**2, 2 * S**2 * D, S * (E + 1) * D, real * expert)
    yield equal("integrated MACs by term", full, (64, 64, 24, 36), source=INTEGRATED_MACS)
    yield equal("integrated MACs", sum(full), 188, source=INTEGRATED_MACS)
    trips = tuple(2 * rows * D * fixture.activation_bytes for rows in (C * k, real))
    yield equal("round-trip bytes, staged and integrated", trips, (16, 24), source=PAYLOAD)


def require_shapes(fixture: ModeFixture) -> None:
    """One sequence of four rows, width 2, two experts of width 3, one no-op."""
    require_shape("X", fixture.X, (S, D))
    require_shape("G", fixture.G, (S, D))
    require_length("w_depth", fixture.w_depth, D)
    require_shape("R_E", fixture.R_E, (D, E))
    require_shape("R_I", fixture.R_I, (D, E + 1))
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        require_shape(name, getattr(fixture.attention, name), (D, D))
    for expert in fixture.experts:
        require_shape("W_1", expert.W_1, (D, D_FF))
        require_shape("W_2", expert.W_2, (D_FF, D))


def evaluate(fixture: ModeFixture) -> Iterator[Check]:
    """Every check of C 0x06, trace first."""
    require_shapes(fixture)
    at = parameters(fixture)
    nested, dense = staged(fixture, at, fixture.k_experts, fixture.gates), integrated(fixture, at)
    yield from trace_checks(fixture, nested, dense)
    yield from forward_checks(fixture, nested, dense)
    yield from backward_checks(fixture, nested, dense)
    yield from outcome_checks(fixture, nested, dense)
    yield from ledger_checks(fixture, dense)


PATHS = (0, 2, 1, 0)
STAGED_KV = ("absent", "present", "absent", "present")
OUTCOME_TABLE = (
    ("depth_skip", False, "absent", "none"),
    ("no_op", True, "present", "zero"),
    ("overflow", True, "present", "missing"),
    ("expert", True, "present", "executed"),
)
# Our tensors: results from an independent evaluation in float64.
STAGED_OUTPUT: Matrix = (
    (0.120000000000, -0.420000000000),
    (-0.614821490729, -0.535304168498),
    (0.280000000000, 0.900000000000),
    (0.234674620527, -0.766160493189),
)
INTEGRATED_OUTPUT: Matrix = (
    (0.061147052590, -0.329639109111),
    (-0.578854101517, -0.367323258628),
    (0.261084072891, 1.564268339826),
    (0.109534027845, -0.647909132816),
)
LOSSES: Vector = (-0.558448729869, -0.193248858791)

ORACLE = Oracle(
    name="mode_composition",
    document="C",
    sections=("0x06C", "0x06D", "0x06E", "0x06F", "0x06G", "0x06J"),
    module=__name__,
    fixture=ModeFixture,
    evaluate=evaluate,
    proves=(
        "staged and integrated forward, each residual owned once, the no-op as a zero delta",
        "gradients of both routers and of the experts inside fixed memberships",
        "depth skip, no-op and overflow as three outcomes; equal parameters, unequal MACs",
    ),
    does_not_prove=(
        "the gate normalization, capacity or balance loss behind the paper's Figure 7",
        "a collective, a latency, or attention gradients (the dense ones on the executed rows)",
    ),
    own=("X", "G", "w_depth", "attention", "experts", "R_E", "R_I", "expert_capacity", "activation_bytes"),
)
