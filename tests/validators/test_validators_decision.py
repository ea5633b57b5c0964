"""The decision as a whole: what a plain composition gets, and the laws no rule may break."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.decision import COMPONENTS, COORDINATES, REFUSING, Finding
from schemas.methods import Choices, Lane, SvdChoices
from tests.validators.examples import SHAPES, codes, judge, make_adapter, make_base, make_spec, weight_map
from validators import CODES, CouldNotCheckError, decide, problem_of
from validators.context import finding, gather
from validators.decision import outcome, predicates, run, vector
from validators.rules import RULES

BASE = make_base()
ADAPTERS = tuple(make_adapter(BASE, label) for label in ("one", "two", "three", "four"))
MANIFESTS = {adapter.digest: adapter for adapter in ADAPTERS}
GRAVITY = {"admitted": 0, "conditional": 1, "refused": 2}

findings = st.builds(
    finding,
    st.sampled_from(sorted(CODES)),
    st.sampled_from(["spec", "blake3:1", "blake3:2"]),
    st.tuples(st.sampled_from(["factors", "space"])),
    st.just("this"),
    st.just("that"),
)


@pytest.mark.parametrize("family", ["lora", "rslora"])
def test_a_plain_composition_on_a_read_base_passes_all_eight_coordinates(family: str) -> None:
    rule = "alpha_over_r" if family == "lora" else "alpha_over_sqrt_r"
    decision = judge(BASE, make_adapter(BASE, family=family, factor={"rule": rule}), ADAPTERS[1])
    statuses = [getattr(decision.vector, name).status for name in COORDINATES]
    assert (decision.outcome, statuses) == ("admitted", ["pass"] * 8)
    assert decision.refusals == ()


def test_static_fusion_answers_for_five_components_and_not_for_history_route_execution_and_cache() -> None:
    decision = judge(BASE, *ADAPTERS)
    statuses = "".join(getattr(decision.predicates, name)[0] for name in COMPONENTS)
    assert statuses == "pppppnnnn"


def test_every_rule_runs_and_all_breaches_are_listed_in_one_order() -> None:
    other = make_base(weight_map(SHAPES, "other"))
    bad = make_adapter(other, "bad", family="alora", initializer="pissa", payload="resume")
    decision = judge(BASE, bad, others=(other,), space=None, lane="amlora_selector")
    assert codes(decision) == [
        "BASE_WEIGHTS_DIFFER",
        "INITIALIZER_MUTATES_BASE",
        "ALORA_CONDITIONAL",
        "TRAINING_FIELDS_MISSING",
        "PAYLOAD_FOREIGN",
        "PAYLOAD_NOT_PORTABLE",
        "DYNAMIC_PACKAGED_STATIC",
        "SPACE_UNDECLARED",
        "HISTORY_MISSING",
        "ROUTER_MISSING",
    ]
    assert decision.vector.algebra.reason == "base_weights_differ"
    assert decision.refusals == decision.findings


@given(st.permutations(range(4)), st.lists(st.floats(-2, 2), min_size=4, max_size=4), st.integers())
def test_the_order_of_members_and_manifests_never_changes_a_static_fusion(
    order: list[int], weights: list[float], seed: int
) -> None:
    shuffled = list(MANIFESTS.items())
    random.Random(seed).shuffle(shuffled)
    straight = make_spec(BASE, *ADAPTERS, weights=tuple(weights))
    permuted = make_spec(BASE, *(ADAPTERS[i] for i in order), weights=tuple(weights[i] for i in order))
    assert decide(straight, BASE, MANIFESTS, {}) == decide(permuted, BASE, dict(shuffled), {})


@given(st.lists(findings, max_size=8), findings, st.sampled_from(["static_fusion", "olora_ordered", "independent"]))
def test_one_more_finding_never_makes_the_outcome_milder(found: list[Finding], more: Finding, lane: Lane) -> None:
    before, after = outcome(found), outcome([*found, more])
    assert GRAVITY[after] >= GRAVITY[before]
    marks = {"none": 0, "pass": 0, "conditional": 1, "fail": 2}
    old, new = predicates(lane, found), predicates(lane, [*found, more])
    assert all(marks[getattr(new, name)] >= marks[getattr(old, name)] for name in COMPONENTS)


@given(st.lists(findings, max_size=8))
def test_the_outcome_is_refused_exactly_when_a_coordinate_refuses(found: list[Finding]) -> None:
    statuses = [getattr(vector(found), name).status for name in COORDINATES]
    assert (outcome(found) == "refused") == any(status in REFUSING for status in statuses)
    assert (outcome(found) == "admitted") == all(status == "pass" for status in statuses)


def test_a_condition_that_could_not_be_verified_says_so_in_its_evidence_grade() -> None:
    base = make_base("not_verified")
    decision = judge(base, make_adapter(base))
    assert decision.vector.evidence.model_dump() == {
        "status": "unverified",
        "reason": "base_evidence_declared",
        "evidence": "not_verified",
    }


def test_acknowledging_changes_neither_the_answer_nor_its_inputs_digest() -> None:
    base = make_base("not_verified")
    adapter = make_adapter(base)
    assert judge(base, adapter) == judge(base, adapter, acknowledge=("BASE_EVIDENCE_DECLARED",))


def test_the_inputs_digest_follows_every_field_of_the_question() -> None:
    one, two = ADAPTERS[:2]
    other = make_base(weight_map(SHAPES, "other"))
    questions = [
        judge(BASE, one, two),
        judge(BASE, one),
        judge(BASE, one, ADAPTERS[2]),
        judge(BASE, one, two, weights=(1.0, 0.5)),
        judge(BASE, one, two, lane="independent"),
        judge(BASE, one, two, space=None),
        judge(BASE, one, two, method="factor_linear"),
        judge(BASE, one, two, choices=Choices(svd=SvdChoices())),
        judge(BASE, one, two, alias="linear"),
        judge(other, one, two, others=(BASE,)),
    ]
    assert len({decision.inputs for decision in questions}) == len(questions)


def test_a_rule_set_without_rules_refuses_to_answer() -> None:
    context = gather(make_spec(BASE, ADAPTERS[0]), BASE, MANIFESTS, {})
    with pytest.raises(CouldNotCheckError) as caught:
        run((), context)
    assert caught.value.code == "RULES_EMPTY"


def test_a_missing_adapter_or_base_is_an_error_and_not_a_refusal() -> None:
    other = make_base(weight_map(SHAPES, "other"))
    member = make_adapter(other)
    spec = make_spec(BASE, member)
    for adapters, missing in (({}, member.digest), ({member.digest: member}, other.digest)):
        with pytest.raises(CouldNotCheckError) as caught:
            decide(spec, BASE, adapters, {})
        assert caught.value.code == "MANIFEST_MISSING"
        assert missing in caught.value.problems[0].expected


def test_no_rule_stands_twice_in_the_table() -> None:
    assert len(set(RULES)) == len(RULES)


@given(st.lists(findings, max_size=8), st.randoms())
def test_findings_come_in_one_order_whatever_the_order_of_the_rules(found: list[Finding], rng: random.Random) -> None:
    context = gather(make_spec(BASE, ADAPTERS[0]), BASE, MANIFESTS, {})
    rules = [lambda _, one=one: iter((one,)) for one in found] + list(RULES)
    straight = run(rules, context)
    rng.shuffle(rules)
    assert run(rules, context) == straight
    places = [COMPONENTS.index(one.predicate) for one in straight]
    assert all(first <= second for first, second in pairwise(places))


def test_a_finding_is_a_problem_with_its_place_and_its_repair() -> None:
    found = finding("WEIGHT_ZERO", "spec", ("members", 0), "not 0", "0")
    problem = problem_of(found)
    assert (problem.code, problem.pointer, problem.expected, problem.observed) == (
        "WEIGHT_ZERO",
        "/members/0",
        "not 0",
        "0",
    )
    assert problem.hint == CODES["WEIGHT_ZERO"].recovery


def test_a_base_that_was_not_read_knows_no_shape() -> None:
    assert make_base("not_verified").shape_of("layers.0.q_proj") is None
    assert BASE.shape_of("layers.0.q_proj") == SHAPES["layers.0.q_proj"]
