"""Identities before operators: what factors, pools, routes and lineages are, and what is no part of them (R 0x00F)."""

from collections.abc import Callable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, equal
from oracles.errors import FixtureRefusedError
from oracles.model import Fixture, Oracle
from oracles.routed.identities import identify
from schemas.canonical import JsonObject
from schemas.digests import Digest

MANIFEST, CANONICAL, FAMILIES, LABELS = "R 0x00F", "R 0x00F.1", "R 0x00F.2", "R 0x00F.3"
LINEAGE, LEDGER, HANDOFF = "R 0x00F.4", "R 0x00F.5", "R 0x00F.6"

Count = Annotated[int, Field(ge=1)]
LabelRole = Literal["none", "balance_target", "classification_target"]


class Layer(Fixture):
    """Dimensions of the teaching layer."""

    d_in: Count
    d_out: Count
    r: Count
    J: Count


class Base(Fixture):
    """Base execution identity."""

    checkpoint: str
    config: str
    tokenizer: str


class Factor(Fixture):
    """One low-rank factor: by module, role and shape, not by its letter."""

    module: str
    role: Literal["input", "output"]
    order: Literal["B_times_A", "A_times_B"]
    shape: tuple[Count, Count]
    dtype: Literal["F32", "BF16"]
    rank: Count
    scale: float
    parent: str
    source: str


class Route(Fixture):
    """A route: router, scope, activation, degree, tie policy, and the role its labels had in training."""

    router: str
    scope: Literal["task", "request", "token", "layer"]
    activation: Literal["softmax", "selected_softmax"]
    k: Count
    tie_break: Literal["candidate_order", "reverse_candidate_order"]
    label_role: LabelRole


class Task(Fixture):
    """One continual transition: data, what moved, what stayed, under which objective."""

    data: str
    trainable: tuple[str, ...]
    frozen: tuple[str, ...]
    objective: str


class Handoff(Fixture):
    """What a method state may say about execution."""

    execution_evidence: Literal["dense_all_candidates", "trace", "not_verified"]
    sparse_execution: Literal["not_verified", "verified"]


class Convention(Fixture):
    """A document's letter for a factor, with the factor's role and shape."""

    document: Literal["series", "o_lora"]
    letter: Literal["A", "B"]
    role: Literal["input", "output"]
    shape: tuple[Count, Count]


class Record(Fixture):
    """One family or control: factors, route, lifecycle, moving state; label, router input, inference label."""

    record: Literal[
        "independent_lora", "static_fusion", "loramoe", "mixture_of_loras", "mole", "hydralora", "o_lora", "am_lora"
    ]
    factors: Literal[
        "independent_pair",
        "fixed_coefficients",
        "independent_pool",
        "trained_pool",
        "shared_A_several_B",
        "ordered_pairs",
        "ordered_pairs_and_zero",
    ]
    route: Literal[
        "fixed_id",
        "none",
        "dense_token_softmax",
        "sequence_by_layer",
        "hierarchical_soft_gate",
        "soft_over_B",
        "feature_softmax",
    ]
    lifecycle: Literal["one_run_each", "merged_afterwards", "joint", "staged", "post_hoc", "sequential"]
    updates: Literal[
        "one_adapter",
        "coefficients",
        "adapters_and_router",
        "gate_only",
        "current_adapter",
        "current_adapter_and_selector",
    ]
    label_role: LabelRole
    router_input: Literal["none", "hidden_state", "sequence_representation", "candidate_outputs", "branch_features"]
    inference_label: Literal["absent", "adapter_id"]


class IdentityFixture(Fixture):
    """A small method state; the document prints dimensions and families, the names are ours."""

    layer: Layer
    base: Base
    factors: tuple[Factor, Factor]
    route: Route
    tasks: tuple[Task, Task, Task]
    handoff: Handoff
    offered: tuple[str, ...]
    conventions: tuple[Convention, Convention, Convention, Convention]
    records: tuple[Record, ...]


def factor_identity(base: Digest, factor: Factor) -> Digest:
    """H_factor over base, module, role and order, shape, dtype, rank, scale, parent and source."""
    record: JsonObject = {"base": base, **factor.model_dump(mode="json")}
    return identify("oracle_factor", record)


def lineage(base: Digest, tasks: tuple[Task, ...]) -> tuple[Digest, ...]:
    """H_t over the ordered parents P_t = (H_base, H_1 .. H_t-1), data, trainable and frozen sets, objective."""
    parents: list[Digest] = [base]
    for task in tasks:
        record: JsonObject = {"parents": [*parents], **task.model_dump(mode="json")}
        parents.append(identify("oracle_task", record))
    return tuple(parents[1:])


def identities(fixture: IdentityFixture) -> dict[str, Digest]:
    """Every identity of the method state; the handoff is not among them."""
    base = identify("oracle_base", fixture.base)
    found = {"base": base}
    for factor in fixture.factors:
        found[f"factor {factor.role}"] = factor_identity(base, factor)
    pool: JsonObject = {"factors": [factor_identity(base, factor) for factor in fixture.factors]}
    found["pool"] = identify("oracle_pool", pool)
    route: JsonObject = {"pool": found["pool"], **fixture.route.model_dump(mode="json")}
    found["route"] = identify("oracle_route", route)
    for t, digest in enumerate(lineage(base, fixture.tasks)):
        found[f"task {t}"] = digest
    return found


def changed(before: IdentityFixture, after: IdentityFixture) -> tuple[str, ...]:
    """The identities a change alters."""
    old, new = identities(before), identities(after)
    return tuple(name for name in old if old[name] != new[name])


def refused_fields(offered: tuple[str, ...]) -> tuple[str, ...]:
    """Fields that describe a placement or a measurement and never enter a method identity."""
    return tuple(name for name in offered if name not in Handoff.model_fields)


def factor_scalars(layer: Layer) -> tuple[int, int, int]:
    """(independent, shared A, shared B)."""
    A, B = layer.r * layer.d_in, layer.r * layer.d_out
    return layer.J * (A + B), A + layer.J * B, layer.J * A + B


def with_factor(fixture: IdentityFixture, **change: object) -> IdentityFixture:
    """The state with one field of its input factor changed."""
    return fixture.model_copy(update={"factors": (fixture.factors[0].model_copy(update=change), fixture.factors[1])})


def with_route(fixture: IdentityFixture, **change: object) -> IdentityFixture:
    """The state with one field of its route changed."""
    return fixture.model_copy(update={"route": fixture.route.model_copy(update=change)})


def with_base(fixture: IdentityFixture, **change: object) -> IdentityFixture:
    """The state with one field of its base changed."""
    return fixture.model_copy(update={"base": fixture.base.model_copy(update=change)})


def with_task(fixture: IdentityFixture, **change: object) -> IdentityFixture:
    """The state with one field of its second task changed."""
    first, second, third = fixture.tasks
    return fixture.model_copy(update={"tasks": (first, second.model_copy(update=change), third)})


def ledger_checks(fixture: IdentityFixture) -> Iterator[Check]:
    """Factor scalars of three ownerships, and what one continual task adds."""
    layer = fixture.layer
    yield equal("d_in, d_out, r, J", (layer.d_in, layer.d_out, layer.r, layer.J), (6, 5, 2, 3), source=LEDGER)
    scalars = factor_scalars(layer)
    yield equal("factor scalars: independent, shared A, shared B", scalars, (66, 42, 46), source=LEDGER)
    yield equal("factor scalars a task", layer.r * (layer.d_in + layer.d_out), 22, source=LEDGER)
    stored = sum(factor.shape[0] * factor.shape[1] for factor in fixture.factors)
    yield equal("scalars of the stored pair", stored, 22, source=LEDGER)
    shapes = tuple(factor.shape for factor in fixture.factors)
    yield equal("shapes of the pair", shapes, ((layer.r, layer.d_in), (layer.d_out, layer.r)), source=CANONICAL)


def state_checks(fixture: IdentityFixture) -> Iterator[Check]:
    """The own names of the state, each where it belongs."""
    yield equal("base", tuple(fixture.base.model_dump().values()), BASE, source=MANIFEST)
    factors = tuple(tuple(f.model_dump(exclude={"shape"}).values()) for f in fixture.factors)
    yield equal("factors", factors, FACTORS, source=CANONICAL)
    yield equal("factors stand on the base", {f.parent for f in fixture.factors} == {BASE[0]}, True, source=CANONICAL)
    yield equal("route", tuple(fixture.route.model_dump().values()), ROUTE, source=CANONICAL)
    tasks = tuple(tuple(task.model_dump().values()) for task in fixture.tasks)
    yield equal("tasks", tasks, TASKS, source=LINEAGE)


def digest_checks(fixture: IdentityFixture) -> Iterator[Check]:
    """A one-field change alters exactly the identities that contain it."""
    yield equal("identities", tuple(identities(fixture)), EVERY, source=MANIFEST)
    bases: dict[str, object] = {"checkpoint": "base-r2", "config": "config-r2", "tokenizer": "tokenizer-r2"}
    factor: dict[str, object] = {
        "module": "model.layers.1.mlp.up_proj",
        "order": "A_times_B",
        "shape": (6, 2),
        "dtype": "BF16",
        "rank": 4,
        "scale": 1.0,
        "parent": "base-r2",
        "source": "run-1",
    }
    route: dict[str, object] = {
        "router": "router-r2",
        "scope": "request",
        "activation": "softmax",
        "k": 1,
        "tie_break": "reverse_candidate_order",
        "label_role": "classification_target",
    }
    task: dict[str, object] = {"data": "data-9", "trainable": (), "frozen": (), "objective": "objective-9"}
    yield from _alters(fixture, "base", with_base, bases, EVERY, MANIFEST)
    yield from _alters(fixture, "factor", with_factor, factor, ("factor input", "pool", "route"), CANONICAL)
    yield from _alters(fixture, "route", with_route, route, ("route",), CANONICAL)
    yield from _alters(fixture, "task", with_task, task, ("task 1", "task 2"), LINEAGE)


def _alters(
    fixture: IdentityFixture,
    name: str,
    change: Callable[..., IdentityFixture],
    changes: dict[str, object],
    expected: tuple[str, ...],
    source: str,
) -> Iterator[Check]:
    for field, value in changes.items():
        altered = changed(fixture, change(fixture, **{field: value}))
        yield equal(f"{name} {field} alters", altered, expected, source=source)


def order_checks(fixture: IdentityFixture) -> Iterator[Check]:
    """A reordered lineage is another lineage; equal shapes do not re-parent an adapter."""
    reordered = fixture.model_copy(update={"tasks": fixture.tasks[::-1]})
    yield equal("a reorder alters", changed(fixture, reordered), ("task 0", "task 1", "task 2"), source=LINEAGE)
    other = with_base(fixture, checkpoint="base-r2")
    same_shape = fixture.factors[0].shape == other.factors[0].shape
    kept = identities(other)["factor input"] == identities(fixture)["factor input"]
    yield equal("equal shapes on another base: shape, identity", (same_shape, kept), (True, False), source=CANONICAL)
    letters = tuple((c.document, c.letter, c.role, c.shape) for c in fixture.conventions)
    yield equal("letters, roles and shapes", letters, LETTERS, source=CANONICAL)
    by_role = {(c.document, c.role): c for c in fixture.conventions}
    pairs = tuple((by_role["series", role], by_role["o_lora", role]) for role in ("input", "output"))
    agreement = tuple((a.shape == b.shape, a.letter == b.letter) for a, b in pairs)
    yield equal("one role: shapes agree, letters do not", agreement, ((True, False),) * 2, source=CANONICAL)


def family_checks(fixture: IdentityFixture) -> Iterator[Check]:
    """Eight records, and the three historical errors their fields prevent."""
    for record, expected in zip(fixture.records, RECORDS, strict=False):
        yield equal(f"record {expected[0]}", tuple(record.model_dump().values()), expected, source=FAMILIES)
    yield equal("families and controls", len(fixture.records), 8, source=FAMILIES)
    named = {record.record: record for record in fixture.records}
    staged, post_hoc, shared = named["mixture_of_loras"], named["mole"], named["hydralora"]
    yield equal(
        "Mixture-of-LoRAs updates adapters in its second stage", staged.updates, "adapters_and_router", source=FAMILIES
    )
    yield equal("MoLE updates the gate only", post_hoc.updates, "gate_only", source=FAMILIES)
    yield equal("HydraLoRA is no smaller independent pool", shared.factors, "shared_A_several_B", source=FAMILIES)
    labelled = tuple(r.record for r in fixture.records if r.label_role != "none")
    yield equal("records with training labels", labelled, ("loramoe", "mixture_of_loras"), source=LABELS)
    leaks = tuple(r.record for r in fixture.records if r.label_role != "none" and r.inference_label != "absent")
    yield equal("training labels present at inference", leaks, (), source=LABELS)


def handoff_checks(fixture: IdentityFixture) -> Iterator[Check]:
    """Evidence words are allowed and change no identity; placement and measurement are refused."""
    evidence = (fixture.handoff.execution_evidence, fixture.handoff.sparse_execution)
    yield equal("execution evidence", evidence, ("dense_all_candidates", "not_verified"), source=HANDOFF)
    other = fixture.model_copy(update={"handoff": Handoff(execution_evidence="trace", sparse_execution="verified")})
    yield equal("evidence alters", changed(fixture, other), (), source=HANDOFF)
    yield equal("refused fields", refused_fields(fixture.offered), REFUSED, source=HANDOFF)
    yield equal("offered fields", len(fixture.offered), 7, source=HANDOFF)


def evaluate(fixture: IdentityFixture) -> Iterator[Check]:
    """Every check of R 0x00F."""
    if len({factor.role for factor in fixture.factors}) != 2:
        raise FixtureRefusedError(
            "factors", [factor.role for factor in fixture.factors], "one input and one output factor"
        )
    yield from ledger_checks(fixture)
    yield from family_checks(fixture)
    yield from state_checks(fixture)
    yield from handoff_checks(fixture)
    yield from order_checks(fixture)
    yield from digest_checks(fixture)


_MODULE = "model.layers.0.mlp.up_proj"
BASE = ("base-r1", "config-r1", "tokenizer-r1")
FACTORS = tuple((_MODULE, role, "B_times_A", "F32", 2, 0.5, "base-r1", "run-0") for role in ("input", "output"))
ROUTE = ("router-r1", "token", "selected_softmax", 2, "candidate_order", "balance_target")
TASKS = (
    ("data-0", ("adapter_0",), ("base",), "objective-0"),
    ("data-1", ("adapter_1",), ("base", "adapter_0"), "objective-1"),
    ("data-2", ("adapter_2",), ("base", "adapter_0", "adapter_1"), "objective-2"),
)
EVERY = ("base", "factor input", "factor output", "pool", "route", "task 0", "task 1", "task 2")
LETTERS = (
    ("series", "A", "input", (2, 6)),
    ("series", "B", "output", (5, 2)),
    ("o_lora", "A", "output", (5, 2)),
    ("o_lora", "B", "input", (2, 6)),
)
REFUSED = ("physical_rank", "slot", "page_address", "kernel", "latency", "throughput")
RECORDS = tuple(
    tuple(line.split())
    for line in (
        "independent_lora independent_pair fixed_id one_run_each one_adapter none none adapter_id",
        "static_fusion fixed_coefficients none merged_afterwards coefficients none none absent",
        "loramoe independent_pool dense_token_softmax joint adapters_and_router balance_target hidden_state absent",
        "mixture_of_loras independent_pool sequence_by_layer staged adapters_and_router classification_target"
        " sequence_representation absent",
        "mole trained_pool hierarchical_soft_gate post_hoc gate_only none candidate_outputs absent",
        "hydralora shared_A_several_B soft_over_B joint adapters_and_router none hidden_state absent",
        "o_lora ordered_pairs none sequential current_adapter none none absent",
        "am_lora ordered_pairs_and_zero feature_softmax sequential current_adapter_and_selector none branch_features"
        " absent",
    )
)

ORACLE = Oracle(
    name="adapter_identity",
    document="R",
    sections=("0x00F", "0x00F.1", "0x00F.2", "0x00F.3", "0x00F.4", "0x00F.5", "0x00F.6"),
    module=__name__,
    fixture=IdentityFixture,
    evaluate=evaluate,
    proves=(
        "factor scalars of independent, shared-A and shared-B pools",
        "a one-field change alters exactly the identities that contain it; order and base are part of identity",
        "eight method records stay apart, and labels, router inputs and inference labels are separate fields",
    ),
    does_not_prove=(
        "that any cited project publishes these records or digests",
        "residency, skipped branches or cache compatibility of any runtime",
    ),
    own=("base", "factors", "route", "tasks", "handoff", "offered"),
)
