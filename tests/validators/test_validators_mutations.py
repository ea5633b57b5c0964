"""Every one-field change of a legal example: refused with a reason, or another identity; none passes in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import pytest

from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.canonical import JsonObject, canonical_bytes
from schemas.composition import AdmissionManifest, ResolvedSpec
from schemas.decision import Decision
from schemas.errors import ProblemError
from schemas.methods import SPACES, Choices, DareChoices, Lane, Method, PruneChoices, Space, SvdChoices, TiesChoices
from tests.schemas.chain import Path
from tests.support.mutations import Vocabulary, mutations
from tests.validators.examples import codes, judge, make_adapter, make_base, make_spec, packed
from tests.validators.test_validators_families import BASE, FAMILIES, legal
from validators import RULES_VERSION, decide, judge_adapter
from validators.rules.choices import owned_choices

Told = Counter[str]
ADAPTERS, SPECS, BASES = Vocabulary(AdapterManifest), Vocabulary(ResolvedSpec), Vocabulary(BaseManifest)
ALL_CHOICES: Mapping[str, Any] = {
    "rank": 2,
    "ties": TiesChoices(density=0.5),
    "dare": DareChoices(density=0.5, seed="7"),
    "prune": PruneChoices(density=0.5),
    "svd": SvdChoices(),
}


def told(changes: Iterator[tuple[Path, JsonObject]], judge_one: Callable[[JsonObject], str]) -> tuple[Told, set[Path]]:
    """How often each answer was given, and where the answer was only another identity."""
    counts: Told = Counter()
    silent_of_rules: set[Path] = set()
    for path, document in changes:
        try:
            answer = judge_one(document)
        except ProblemError:
            answer = "refused by its type"
        counts[answer] += 1
        if answer == "another identity":
            silent_of_rules.add(path)
        assert answer != "silent", (path, document)
    assert counts.keys() <= {*ANSWERS}
    ALL.update(counts)
    return counts, silent_of_rules


ALL: Told = Counter()
"""Every answer of this module, printed at its end."""
UNKNOWN = "names a base that is not there"
ANSWERS = ("refused by its type", "refused by its contract", "refused", "conditional", "another identity", UNKNOWN)


@pytest.fixture(scope="module", autouse=True)
def _counted() -> Iterator[None]:
    """The counts, where output is shown."""
    yield
    print(f"\n{ALL.total()} one-field changes: {dict(ALL.most_common())}")


def base_of(key: str) -> BaseManifest:
    return make_base(quantizer=packed()) if FAMILIES[key].quantized else BASE


@pytest.mark.parametrize("key", FAMILIES)
def test_a_changed_adapter_of_every_family_is_refused_or_another_one(key: str) -> None:
    base = base_of(key)
    example = legal(key, base)
    before = Counter(codes(judge(base, example)))

    def judge_one(document: JsonObject) -> str:
        changed = AdapterManifest.parse(canonical_bytes(document))
        if changed.base != base.digest:
            return UNKNOWN
        if judge_adapter(changed, base):
            return "refused by its contract"
        decision = judge(base, changed)
        if Counter(codes(decision)) - before:
            return "conditional" if decision.outcome == "conditional" else "refused"
        return "another identity" if changed.digest != example.digest else "silent"

    counts, free = told(mutations(example.document(), ADAPTERS), judge_one)
    assert counts["refused by its type"] > counts.total() // 2
    # Only what the adapter itself is may differ: its tensors, its parent, what its training was.
    tensors = {("factors", 0, side) for side in "ab"} | {("factors", 0, "extra", role) for role in FAMILIES[key].roles}
    allowed = {(*place, field) for place in tensors for field in ("tensor", "dtype", "shape")}
    allowed |= {("factors", 0, "parent")} | {("training", name) for name in FAMILIES[key].training}
    allowed |= {("factors", 0, "extra", role, "shape", 1) for role in FAMILIES[key].roles}
    allowed |= {("factors", 0, "expert")} if FAMILIES[key].form == "routed" else set()
    if FAMILIES[key].form in ("pooled_input", "block_diagonal"):
        allowed |= {("factors", 0, "a", "shape", 1), ("factors", 0, "b", "shape", 0), ("factors", 0, "order")}
    assert free - allowed == set()


QUESTIONS = [(method, space) for method, spaces in SPACES.items() for space in spaces if method != "dense_sum"]


@pytest.mark.parametrize(("method", "space"), QUESTIONS)
def test_a_changed_spec_of_every_method_and_space_is_refused_or_another_question(method: Method, space: Space) -> None:
    members = [make_adapter(BASE, label) for label in ("one", "two")]
    manifests = {adapter.digest: adapter for adapter in members}
    chosen = Choices(**{name: ALL_CHOICES[name] for name in owned_choices(method, space)})
    example = make_spec(BASE, *members, method=method, space=space, choices=chosen)
    before = admission(example, decide(example, BASE, manifests, {}))
    assert before.decision.outcome == "admitted"

    def judge_one(document: JsonObject) -> str:
        changed = asked(before, document)
        if changed.base != BASE.digest:
            return UNKNOWN
        decision = decide(changed, BASE, manifests, {})
        if decision.outcome != "admitted":
            return decision.outcome
        return "another identity" if admission(changed, decision).digest != before.digest else "silent"

    counts, free = told(mutations(example.document(), SPECS), judge_one)
    assert counts["refused by its type"] > counts.total() // 2
    assert {path[0] for path in free} <= {"members", "choices", "acknowledge", "method", "space"}


def admission(spec: ResolvedSpec, decision: Decision) -> AdmissionManifest:
    """What is stored of an answer."""
    return AdmissionManifest(spec=spec, rules=RULES_VERSION, decision=decision)


def asked(before: AdmissionManifest, spec: JsonObject) -> ResolvedSpec:
    """The question of a stored admission whose spec was changed."""
    stored = AdmissionManifest.parse(canonical_bytes({**before.document(), "spec": spec})).spec
    assert isinstance(stored, ResolvedSpec)
    return stored


@pytest.mark.parametrize("lane", [lane for lane in get_args(Lane) if lane != "static_fusion"])
def test_a_changed_spec_of_a_lane_that_is_not_composed_is_never_admitted(lane: Lane) -> None:
    members = [make_adapter(BASE, label) for label in ("one", "two")]
    manifests = {adapter.digest: adapter for adapter in members}
    example = make_spec(BASE, *members, lane=lane)
    before = admission(example, decide(example, BASE, manifests, {}))

    def judge_one(document: JsonObject) -> str:
        changed = asked(before, document)
        if changed.base != BASE.digest:
            return UNKNOWN
        decision = decide(changed, BASE, manifests, {})
        return decision.outcome if decision.outcome != "admitted" or changed.lane == "static_fusion" else "silent"

    counts, _ = told(_but_the_lane(mutations(example.document(), SPECS)), judge_one)
    assert counts["refused"] > 0


def _but_the_lane(changes: Iterator[tuple[Path, JsonObject]]) -> Iterator[tuple[Path, JsonObject]]:
    """All changes but the one to the lane that is composed."""
    return ((path, document) for path, document in changes if document.get("lane") != "static_fusion")


@pytest.mark.parametrize("base", [BASE, make_base(quantizer=packed())], ids=["float", "packed"])
def test_a_changed_base_is_refused_or_never_taken_for_the_base_of_a_member(base: BaseManifest) -> None:
    member = make_adapter(base)

    def judge_one(document: JsonObject) -> str:
        changed = BaseManifest.parse(canonical_bytes(document))
        if changed.digest == base.digest:
            return "silent"
        spec = make_spec(changed, member)
        return decide(spec, changed, {member.digest: member}, {base.digest: base}).outcome

    counts, _ = told(mutations(base.document(), BASES), judge_one)
    assert counts["admitted"] == 0
    assert counts["conditional"] > 0
