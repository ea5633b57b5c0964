"""One request across every contract: replay, lanes, transaction, counterfactuals, publication and rollback (R 0x09)."""

from collections.abc import Iterator
from functools import cache
from typing import Literal

from oracles.checks import Check, Value, below, close, equal
from oracles.model import Fixture, Oracle
from oracles.routed.cross_contract_replay import (
    UPSTREAM,
    Replayed,
    admits,
    drift_keeps_meaning,
    replayed,
    reproduces,
    value_of,
)
from oracles.routed.identities import identify
from oracles.routed.runtime_execution import (
    RuntimeFixture,
    build_plan,
    execution_signature,
    packed_forward,
    route_digest,
    segments,
)
from schemas.canonical import JsonObject, JsonValue
from schemas.digests import Digest, blob_digest

PRODUCT, REPLAY, LANES, REQUEST = "R 0x09A", "R 0x09B", "R 0x09C", "R 0x09D"
OWNERSHIP, COMPOSITION, PUBLICATION, COUNTERFACTUALS = "R 0x09E", "R 0x09F", "R 0x09G", "R 0x09H"


class Loop(Fixture):
    """One upstream loop and its oracle."""

    loop: int
    oracle: str


class Lane(Fixture):
    """One legal lifecycle: how it was trained, what it owns, how it composes, routes, runs and is released."""

    lane: Literal["shared_a_selected", "static_fusion", "o_lora_ordered", "am_lora_selector"]
    training: Literal["joint_asymmetric", "post_training_coefficients", "sequential", "sequential_and_selector"]
    topology: Literal["shared_A_several_B", "independent", "ordered_pairs", "ordered_pairs_and_zero"]
    composition: Literal["dynamic", "delta_cat", "scale_aware_cat", "attentional_mixture"]
    route: Literal["selected_top2", "none", "cumulative", "dense_softmax"]
    materialization: Literal["routed_B", "one_child_delta", "one_cumulative_update", "every_task_branch"]
    release: Literal["base_router_factors", "versioned_child", "ordered_parents", "ordered_parents_and_selector"]


class Request(Fixture):
    """What one request binds."""

    request: str
    lane: Literal["shared_a_selected", "static_fusion", "o_lora_ordered", "am_lora_selector"]
    base: str
    router: str
    plan_generation: int
    catalog_generation: int
    versions: tuple[str, str, str]
    slot_generations: tuple[int, int, int]
    pointer_generations: tuple[int, int, int]
    A_storage: str
    A_generation: int


class Generation(Fixture):
    """One published plan generation with its ordered artifact versions."""

    generation: int
    versions: tuple[str, str, str]


class Counterfactual(Fixture):
    """A same-shape substitution and the upstream check whose value rejects it."""

    substitution: Literal[
        "dynamic_as_static_merge",
        "factor_linear_as_delta_sum",
        "shared_A_for_unequal_A",
        "softmax_as_sparse_execution",
        "naive_heterogeneous_cat",
        "reordered_tasks_under_old_id",
        "kv_after_route_change",
        "skipped_work_from_top_k",
    ]
    oracle: str
    check: str


class CrossFixture(Fixture):
    """Loops, lanes, one request, three publications and eight substitutions."""

    loops: tuple[Loop, ...]
    lanes: tuple[Lane, Lane, Lane, Lane]
    request: Request
    publications: tuple[Generation, Generation, Generation]
    counterfactuals: tuple[Counterfactual, ...]


PREDICATES = {
    "training": "P_T",
    "topology": "P_F",
    "composition": "P_C",
    "route": "P_R",
    "materialization": "P_E",
    "release": "P_S",
}


def violated(lane: Lane) -> tuple[str, ...]:
    """The predicates a lane breaks against the frozen contract its method key resolves to."""
    contract = dict(zip(Lane.model_fields, LANE_TABLE[lane.lane], strict=True))
    return tuple(name for field, name in PREDICATES.items() if getattr(lane, field) != contract[field])


def static_merge_legal(lane: Lane) -> bool:
    """Only fixed coefficients without a live route make one static artifact."""
    return lane.composition in ("delta_cat", "scale_aware_cat") and lane.route in ("none", "cumulative")


@cache
def runtime() -> RuntimeFixture:
    """The teaching tensors of loop 9."""
    return RuntimeFixture.model_validate_json(UPSTREAM["runtime_execution"].fixture_bytes())


def components(request: Request) -> dict[str, JsonValue]:
    """The nine identities a transaction binds."""
    loop9 = runtime()
    return {
        "base": request.base,
        "lane": request.lane,
        "router": request.router,
        "route": route_digest(loop9.routes),
        "factor": [*request.versions, request.A_storage, request.A_generation],
        "slot": list(request.slot_generations),
        "pointer": list(request.pointer_generations),
        "lease": [request.catalog_generation, request.plan_generation, request.request],
        "kv": execution_signature(loop9.lease, loop9.routes),
    }


def model_identity(request: Request) -> Digest:
    """I_model over base, lane, router and factors: what the function is."""
    bound = components(request)
    return identify("oracle_model", {name: bound[name] for name in ("base", "lane", "router", "factor")})


def transaction(bound: dict[str, JsonValue]) -> Digest:
    """I_tx over every component, by name."""
    return identify("oracle_transaction", bound)


def publication_identities(publications: tuple[Generation, ...]) -> tuple[Digest, ...]:
    """I_P(g) over generation, ordered versions and the publication before it."""
    found: list[Digest] = []
    for publication in publications:
        record: JsonObject = {"before": found[-1] if found else None, **publication.model_dump(mode="json")}
        found.append(identify("oracle_publication", record))
    return tuple(found)


def may_reuse(kv_generation: int, request_generation: int, *, proven: bool) -> bool:
    """K/V serves the generation it was built under; any other needs an explicit compatibility proof."""
    return proven or kv_generation == request_generation


def replay_checks(fixture: CrossFixture) -> Iterator[Check]:
    """Eight reports rebuilt; each of the four files of a loop can refuse it."""
    loops = tuple((loop.loop, loop.oracle) for loop in fixture.loops)
    yield equal("loops", loops, tuple(enumerate(UPSTREAM, start=2)), source=REPLAY)
    reports = {name: replayed(name) for name in UPSTREAM}
    passed = sum(report.passed for report, _ in reports.values())
    yield equal("upstream reports that hold", (passed, len(reports)), (8, 8), source=REPLAY)
    same = sum(reproduces(name) for name in UPSTREAM)
    yield equal("program of fixture is the report", same, 8, source=REPLAY)
    other = blob_digest(b"other bytes")
    refused = sum(
        not admits(held, held._replace(**{part: other})) for _, held in reports.values() for part in Replayed._fields
    )
    yield equal("one changed file of a loop refuses it", refused, 32, source=REPLAY)
    drifted = sum(drift_keeps_meaning(name) for name in UPSTREAM)
    yield equal("a reserialised report: other bytes, same meaning", drifted, 8, source=REPLAY)


def lane_checks(fixture: CrossFixture) -> Iterator[Check]:
    """Four lanes hold; a field taken from another lane breaks exactly its predicate."""
    rows = tuple(tuple(lane.model_dump().values()) for lane in fixture.lanes)
    yield equal("lanes", rows, tuple(LANE_TABLE.values()), source=LANES)
    legal = sum(not violated(lane) for lane in fixture.lanes)
    yield equal("legal lanes", legal, 4, source=LANES)
    mixed = [
        (violated(lane.model_copy(update={field: getattr(other, field)})), (predicate,))
        for lane in fixture.lanes
        for other in fixture.lanes
        for field, predicate in PREDICATES.items()
        if getattr(lane, field) != getattr(other, field)
    ]
    yield equal("fields taken from another lane", (sum(a == b for a, b in mixed), len(mixed)), (72, 72), source=LANES)
    static = tuple(static_merge_legal(lane) for lane in fixture.lanes)
    yield equal("static merge is legal", static, (False, True, True, False), source=COMPOSITION)


def request_checks(request: Request) -> Iterator[Check]:
    """The request binds what loop 9 leased: model, router, factors, slots, pointers, one owner of A."""
    loop9 = runtime()
    launch = loop9.launch
    bound = (request.base, request.router, request.plan_generation, request.catalog_generation)
    held = (launch.base, launch.router, launch.plan_generation, launch.catalog_generation)
    yield equal("request against lease", bound, held, source=REQUEST)
    yield equal(
        "base, router, plan and catalog", bound, ("teaching-base-r17", "teaching-router-r9", 41, 31), source=REQUEST
    )
    yield equal(
        "request and lane",
        (request.request, request.lane),
        ("request-loop10-0001", "shared_a_selected"),
        source=REQUEST,
    )
    yield equal("versions", request.versions, tuple(a.version for a in launch.adapters), source=REQUEST)
    yield equal("slot generations", request.slot_generations, (11, 12, 13), source=REQUEST)
    yield equal("pointer generations", request.pointer_generations, (21, 22, 23), source=REQUEST)
    leased = (tuple(a.slot_generation for a in launch.adapters), tuple(a.pointer_generation for a in launch.adapters))
    yield equal(
        "slots and pointers as leased", (request.slot_generations, request.pointer_generations), leased, source=REQUEST
    )
    owner = (request.A_storage, request.A_generation)
    yield equal("one owner of shared A", owner, ("shared-A-storage-r17", 17), source=REQUEST)
    owners = {(branch.storage, branch.version) for branch in loop9.branches}
    yield equal("every branch has that owner", owners == {owner}, True, source=OWNERSHIP)
    yield from execution_checks()
    yield from identity_checks(request)


def execution_checks() -> Iterator[Check]:
    """The bound route runs as loop 9 proved it."""
    loop9 = runtime()
    plan = build_plan(loop9.routes)
    yield equal("occurrences and segments", (len(plan.occurrences), len(segments(plan))), (8, 3), source=REQUEST)
    output = packed_forward(loop9, plan, (loop9.A,) * 3, segments(plan))
    yield close("shared-A output of the request", output, OUTPUT, source=REQUEST, digits=4)
    work = value_of("runtime_execution", "FLOPs independent, shared, saved")
    yield equal("FLOPs saved", work, (160, 112, 48), source=REQUEST)
    error = value_of("runtime_execution", "shared A packed gradients (38 coordinates)")
    measured = error if isinstance(error, float) else float("inf")
    yield below("shared-A finite-difference error", measured, 7.11e-10, source=REQUEST)


def identity_checks(request: Request) -> Iterator[Check]:
    """Every component moves the transaction; a slot moves execution and not the function."""
    bound = components(request)
    yield equal("bound identities", tuple(bound), COMPONENTS, source=REQUEST)
    moved = tuple(name for name in bound if transaction({**bound, name: "other"}) != transaction(bound))
    yield equal("components of the transaction", moved, COMPONENTS, source=REQUEST)
    republished = request.model_copy(update={"slot_generations": (11, 99, 13)})
    versioned = request.model_copy(update={"versions": ("adapter-0-r5", "adapter-1-r4", "adapter-2-r8")})
    changes = tuple(
        (model_identity(other) != model_identity(request), transaction(components(other)) != transaction(bound))
        for other in (republished, versioned)
    )
    yield equal("slot and version: model, execution change", changes, ((False, True), (True, True)), source=PRODUCT)


def publication_checks(publications: tuple[Generation, ...]) -> Iterator[Check]:
    """41 -> 42 -> 43: the artifacts of 41 return under a new identity, and no K/V is relabelled."""
    numbers = tuple(p.generation for p in publications)
    yield equal("plan generations", numbers, (41, 42, 43), source=PUBLICATION)
    versions = tuple(p.versions for p in publications)
    yield equal("artifact versions", versions, VERSIONS, source=PUBLICATION)
    yield equal("A(43) = A(41)", versions[2] == versions[0], True, source=PUBLICATION)
    found = publication_identities(publications)
    yield equal("I_P(43) = I_P(41)", found[2] == found[0], False, source=PUBLICATION)
    yield equal("distinct publications", len(set(found)), 3, source=PUBLICATION)
    reuse = tuple(may_reuse(a, b, proven=False) for a, b in ((42, 43), (41, 43), (41, 41)))
    yield equal("K/V 42 in 43, 41 in 43, 41 in 41", reuse, (False, False, True), source=PUBLICATION)
    yield equal("a proof admits reuse", may_reuse(41, 43, proven=True), True, source=PUBLICATION)


def counterfactual_checks(fixture: CrossFixture) -> Iterator[Check]:
    """Eight substitutions fit every shape; an upstream value rejects each of them."""
    named = tuple(c.substitution for c in fixture.counterfactuals)
    yield equal("substitutions", named, tuple(WITNESSES), source=COUNTERFACTUALS)
    for c in fixture.counterfactuals:
        witness = WITNESSES[c.substitution]
        value = value_of(c.oracle, c.check)
        if isinstance(witness, float):
            yield close(f"{c.substitution} is rejected", value, witness, source=COUNTERFACTUALS, digits=6)
        else:
            yield equal(f"{c.substitution} is rejected", value, witness, source=COUNTERFACTUALS)
    yield equal("substitutions rejected", len(fixture.counterfactuals), 8, source=COUNTERFACTUALS)
    branches = value_of("continual_state", "branches and logits a row")
    yield equal("AM-LoRA branches a row", branches, (3, 4), source=COMPOSITION)
    residual = value_of("composition_merge", "additivity residual norm")
    yield close("additivity residual norm", residual, 0.326766, source=COMPOSITION, digits=6)
    cross = value_of("composition_merge", "cross-term norm")
    yield close("cross-term norm", cross, 1.0, source=COMPOSITION, digits=1)


def evaluate(fixture: CrossFixture) -> Iterator[Check]:
    """Every check of R 0x09."""
    yield from lane_checks(fixture)
    yield from publication_checks(fixture.publications)
    yield from replay_checks(fixture)
    yield from request_checks(fixture.request)
    yield from counterfactual_checks(fixture)


LANE_TABLE = {
    line.split()[0]: tuple(line.split())
    for line in (
        "shared_a_selected joint_asymmetric shared_A_several_B dynamic selected_top2 routed_B base_router_factors",
        "static_fusion post_training_coefficients independent delta_cat none one_child_delta versioned_child",
        "o_lora_ordered sequential ordered_pairs scale_aware_cat cumulative one_cumulative_update ordered_parents",
        "am_lora_selector sequential_and_selector ordered_pairs_and_zero attentional_mixture dense_softmax"
        " every_task_branch ordered_parents_and_selector",
    )
}
BOUND = ("teaching-base-r17", "teaching-router-r9", 41, 31)
OUTPUT = ((-0.1875, 0.0), (-2.6, 2.1), (-0.375, 2.25), (-2.4, 1.5))
COMPONENTS = ("base", "lane", "router", "route", "factor", "slot", "pointer", "lease", "kv")
_OLD = ("adapter-0-r5", "adapter-1-r3", "adapter-2-r8")
VERSIONS = (_OLD, ("adapter-0-r5", "adapter-1-r4", "adapter-2-r8"), _OLD)
WITNESSES: dict[str, Value] = {
    "dynamic_as_static_merge": 0.326766,
    "factor_linear_as_delta_sum": 1.0,
    "shared_A_for_unequal_A": 2.15625,
    "softmax_as_sparse_execution": 0,
    "naive_heterogeneous_cat": 1.0,
    "reordered_tasks_under_old_id": True,
    "kv_after_route_change": True,
    "skipped_work_from_top_k": (False, False, True, False),
}

ORACLE = Oracle(
    name="cross_contract",
    document="R",
    sections=("0x09A", "0x09B", "0x09C", "0x09D", "0x09E", "0x09F", "0x09G", "0x09H"),
    module=__name__,
    fixture=CrossFixture,
    evaluate=evaluate,
    proves=(
        "eight upstream reports rebuild from their fixtures, and one changed file of a loop refuses it",
        "four lanes stay apart field by field; one request binds model, route, factors, slots, pointers, lease and K/V",
        "eight same-shape substitutions are rejected; rollback restores artifacts under a new publication",
    ),
    does_not_prove=(
        "a production wire format, scheduler or rollback",
        "that a proof of K/V compatibility exists for any architecture; the SHA-256 values the document prints",
    ),
    document_mutations=222,
)
