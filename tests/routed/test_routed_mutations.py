"""One changed field of a release's parts, a route, a request or a release: refused, or another identity (R 0x09C)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product as pairs
from pathlib import Path as File
from typing import Any, get_args

import pytest

from registry.client import EmbeddedRegistry
from registry.errors import RefusedError
from schemas.adapter import AdapterManifest
from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.composition import AdmissionManifest
from schemas.continual import ContinualStateManifest
from schemas.digests import Digest, blob_digest
from schemas.errors import ProblemError
from schemas.methods import Lane
from schemas.model import validate
from schemas.release import CandidateManifest, ResolvedRelease, ResolvedRouteManifest, TransactionManifest, product
from schemas.router import RouterManifest
from tests.routed.documents import TOP_K, route, transaction
from tests.routed.lanes import ROUTES, lane_router
from tests.routed.test_routed_histories import history, mixture
from tests.routed.test_routed_releases import admit
from tests.routed.test_routed_routers import experts, gates, of, per_module
from tests.schemas.chain import Path, replaced
from tests.support.mutations import Vocabulary, mutations
from tests.validators.examples import make_adapter, make_base
from validators import RULES_VERSION
from validators.continual import judge_state
from validators.routes.release import ReleaseParts, decide_release

BASE = make_base()
PLAIN = [make_adapter(BASE, label) for label in ("one", "two", "three")]
WORDS = Vocabulary(
    ResolvedRelease, RouterManifest, ContinualStateManifest, CandidateManifest, ResolvedRouteManifest,
    TransactionManifest,
)  # fmt: skip
LANES = [lane for lane in get_args(Lane) if lane not in ("independent", "static_fusion")]
FOREIGN = blob_digest(b"of something that is not registered")
TYPE, UNKNOWN, RULE, OTHER = "refused by type", "refused as unknown", "refused by rule", "another identity"
CONDITION = "waits for a condition"
ALL: Counter[str] = Counter()
"""Every answer of this module, printed at its end."""


@pytest.fixture(scope="module", autouse=True)
def _printed() -> Iterator[None]:
    yield
    print(f"\n{ALL.total()} one-field changes: {dict(ALL)}")


def told(changes: Iterator[tuple[Path, JsonObject]], judge_one: Callable[[JsonObject], str]) -> Counter[str]:
    """How often each answer was given; silence fails."""
    counts: Counter[str] = Counter()
    for path, document in changes:
        try:
            answer = judge_one(document)
        except ProblemError as error:
            answer = TYPE if error.code in ("MANIFEST_INVALID", "NOT_CANONICAL") else f"refused: {error.code}"
        assert answer != "silent", (path, document)
        counts[answer] += 1
    ALL.update(counts)
    assert counts.total() > 100
    return counts


def changed(document: JsonObject) -> Iterator[tuple[Path, JsonObject]]:
    """Every one-field change, and every digest exchanged for another of the document and for a foreign one."""
    yield from mutations(document, WORDS)
    held = sorted({value for _, value in _digests(document)})
    for (path, value), other in pairs([*_digests(document)], [*held, FOREIGN]):
        if value != other:
            yield path, _put(document, path, other)


def _digests(value: JsonValue, path: Path = ()) -> Iterator[tuple[Path, str]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        if isinstance(inner, str) and inner.startswith("blake3:"):
            yield (*path, step), inner
        yield from _digests(inner, (*path, step))


def _put(document: JsonObject, path: Path, other: JsonValue) -> JsonObject:
    found = replaced(document, path, lambda _: other)
    assert isinstance(found, dict)
    return found


def legal(lane: Lane) -> tuple[ReleaseParts, tuple[ContinualStateManifest, ...]]:
    """A release of a lane that is admitted, and the parents of its state."""
    adapters, pool = _pool(lane)
    router = validate(RouterManifest, lane_router(lane, BASE.digest, pool)) if lane in ROUTES else None
    states = _states(lane, router)
    state = states[-1] if states else None
    spec = ResolvedRelease(
        base=BASE.digest,
        lane=lane,
        router="none" if router is None else router.digest,
        state="none" if state is None else state.digest,
        package="live",
        acknowledge=("BASE_EVIDENCE_STRUCTURAL",),
    )
    known = {adapter.digest: adapter for adapter in adapters}
    return ReleaseParts(spec, BASE, known, router, state), tuple(states[:-1])


def _pool(lane: Lane) -> tuple[list[AdapterManifest], list[JsonValue]]:
    if lane in ("shared_a_selected", "shared_a_dense", "joint_routed"):
        adapter = experts(2, 2, 2, shared=lane != "joint_routed")
        return [adapter], of(adapter, 3)
    rank = {"rank": 1, "alpha": 2.0} if lane == "instance_factors" else {}
    adapters = [make_adapter(BASE, label, factor=rank) for label in ("one", "two", "three")]
    return adapters, [{"adapter": adapter.digest} for adapter in adapters]


def _states(lane: Lane, router: RouterManifest | None) -> list[ContinualStateManifest]:
    digests = [adapter.digest for adapter in PLAIN]
    if lane == "olora_ordered":
        return history(digests)
    if lane != "amlora_selector":
        return []
    assert router is not None
    return mixture(digests, selector=router.digest)


def identity(parts: ReleaseParts) -> Digest:
    """``I_model`` of what a release would publish."""
    order = [*parts.adapters.values()]
    return product(parts.spec.base, parts.spec.lane, tuple(order), parts.router, parts.state).model


def answer(parts: ReleaseParts, before: ReleaseParts) -> str:
    """What becomes of a release with a changed part."""
    decision = decide_release(parts)
    if identity(parts) == identity(before):
        return "silent"
    return {"refused": RULE, "conditional": CONDITION, "admitted": OTHER}[decision.outcome]


def admission(parts: ReleaseParts) -> AdmissionManifest:
    """What is stored of the answer to a release."""
    return AdmissionManifest(spec=parts.spec, rules=RULES_VERSION, decision=decide_release(parts))


@pytest.mark.parametrize("lane", LANES)
def test_the_example_of_a_lane_is_admitted(lane: Lane) -> None:
    parts, _ = legal(lane)
    assert decide_release(parts).findings == ()


@pytest.mark.parametrize("lane", LANES)
def test_a_changed_release_is_refused_or_another_admission(lane: Lane) -> None:
    parts, _ = legal(lane)
    before = admission(parts)

    def judge_one(document: JsonObject) -> str:
        stored = AdmissionManifest.parse(canonical_bytes({**before.document(), "spec": document})).spec
        assert isinstance(stored, ResolvedRelease)
        held = {"base": {BASE.digest}, "router": {"none", parts.spec.router}, "state": {"none", parts.spec.state}}
        if any(getattr(stored, part) not in known for part, known in held.items()):
            return UNKNOWN
        found = replace(
            parts,
            spec=stored,
            router=parts.router if stored.router != "none" else None,
            state=parts.state if stored.state != "none" else None,
        )
        if decide_release(found).outcome == "refused":
            return RULE
        assert (stored.lane, stored.package) == (lane, "live")
        return OTHER if admission(found).digest != before.digest else "silent"

    counts = told(changed(parts.spec.document()), judge_one)
    print(lane, dict(counts))
    assert counts.keys() == {TYPE, UNKNOWN, RULE, OTHER}
    assert counts[RULE] >= len(get_args(Lane)) - 1


@pytest.mark.parametrize("lane", ROUTES)
def test_a_changed_router_of_a_lane_is_refused_or_another_model(lane: Lane) -> None:
    before, _ = legal(lane)
    assert before.router is not None

    def judge_one(document: JsonObject) -> str:
        router = RouterManifest.parse(canonical_bytes(document))
        if router.base != BASE.digest or {entry.adapter for entry in router.pool} - before.adapters.keys():
            return UNKNOWN
        spec = before.spec.model_copy(update={"router": router.digest})
        return answer(replace(before, router=router, spec=spec), before)

    counts = told(changed(before.router.document()), judge_one)
    print(lane, dict(counts))
    assert counts[TYPE] > counts.total() // 2
    assert counts[RULE] > 20
    # a history names its selector, so that no other router takes its place
    assert (counts[OTHER] == 0) == (lane == "amlora_selector")


@pytest.mark.parametrize("lane", ["olora_ordered", "amlora_selector"])
def test_a_changed_state_of_a_lane_is_refused_or_another_model(lane: Lane) -> None:
    before, parents = legal(lane)
    assert before.state is not None
    known = {parent.digest: parent for parent in parents}

    def judge_one(document: JsonObject) -> str:
        state = ContinualStateManifest.parse(canonical_bytes(document))
        named = {task.adapter for task in state.tasks} - before.adapters.keys()
        selectors = {"none", before.spec.router}
        if named or set(state.parents) - known.keys() or state.base != BASE.digest or state.selector not in selectors:
            return UNKNOWN
        own = None if state.selector == "none" else before.router
        found = judge_state(state, before.adapters, [known[digest] for digest in state.parents], own)
        if any(item.severity == "refuse" for item in found):
            return RULE
        spec = before.spec.model_copy(update={"state": state.digest})
        return answer(replace(before, state=state, spec=spec), before)

    counts = told(changed(before.state.document()), judge_one)
    print(lane, dict(counts))
    assert counts.keys() >= {TYPE, UNKNOWN, RULE, OTHER}


@pytest.mark.parametrize("lane", ["independent", "static_fusion"])
def test_a_lane_without_parts_of_its_own_is_never_released_by_parts(lane: Lane) -> None:
    parts, _ = legal("posthoc_routed")
    spec = parts.spec.model_copy(update={"lane": lane})
    assert {item.code for item in decide_release(replace(parts, spec=spec)).findings} == {"LANE_NOT_COMPOSABLE"}


@pytest.fixture
def released(registry: EmbeddedRegistry, tmp_path: File) -> str:
    """A published candidate of one router, and the name of a route it could have taken."""
    registry.add_router(per_module(family="meteora", **TOP_K), "route", gates(tmp_path / "gates.safetensors"))
    made = admit(registry, "posthoc_routed", router="route")
    registry.publish("bot", [str(made.candidate)])
    return str(made.candidate)


def chosen(registry: EmbeddedRegistry) -> JsonObject:
    """A route of the router, by digests."""
    return route(registry.show("route").digest, [registry.show(name).digest for name in ("one", "two")])


def added(add: Callable[[JsonObject, str], Any], before: str) -> Callable[[JsonObject], str]:
    """Register a changed document; the same digest again would have passed in silence."""

    def judge_one(document: JsonObject) -> str:
        return OTHER if add(document, "changed").digest != before else "silent"

    return judge_one


def test_a_changed_route_is_refused_or_another_route(registry: EmbeddedRegistry, released: str) -> None:
    assert registry.show(released).manifest["kind"] == "candidate"
    document = chosen(registry)
    before = registry.add_resolved_route(document, "chosen").digest
    counts = told(changed(document), added(registry.add_resolved_route, before))
    print(dict(counts))
    assert {TYPE, OTHER, "refused: ROUTE_OUTSIDE_POOL", "refused: ROUTE_DEGREE_DIFFERS"} <= counts.keys()
    assert {"refused: ROUTE_NOT_NORMALIZED", "refused: ROUTE_OF_ANOTHER_ROUTER"} <= counts.keys()


def test_a_route_takes_each_candidate_once(registry: EmbeddedRegistry, released: str) -> None:
    one = registry.show("one").digest
    assert released in {node.digest for node in registry.lineage("one", "down").nodes}
    with pytest.raises(RefusedError) as caught:
        registry.add_resolved_route(route("route", [one, one]), "twice")
    assert {problem.code for problem in caught.value.problems} == {"ROUTE_DEGREE_DIFFERS"}


def test_a_changed_transaction_is_refused_or_another_request(registry: EmbeddedRegistry, released: str) -> None:
    taken = registry.add_resolved_route(chosen(registry), "chosen").digest
    kv = registry.cache_identity("bot").kv_identity
    document = transaction(released, taken, generation=1, kv_identity=kv)
    before = registry.add_transaction(document, "request").digest
    counts = told(changed(document), added(registry.add_transaction, before))
    print(dict(counts))
    assert {TYPE, OTHER, "refused: KV_AFTER_ROUTE_CHANGE"} <= counts.keys()
    assert "refused: EXECUTION_OF_ANOTHER_GENERATION" in counts


def test_a_changed_candidate_is_refused_or_one_that_nobody_admitted(registry: EmbeddedRegistry, released: str) -> None:
    before = registry.show(released).manifest

    def judge_one(document: JsonObject) -> str:
        found = CandidateManifest.parse(canonical_bytes(document))
        if found.digest == released:
            return "silent"
        registry.publish("other", [found.digest])
        return "published"

    counts = told(changed(before), judge_one)
    print(dict(counts))
    assert counts.keys() == {TYPE, "refused: MANIFEST_UNKNOWN"}
