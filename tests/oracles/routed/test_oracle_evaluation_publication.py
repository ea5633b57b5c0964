"""Evaluation's traps: unpaired cells, a replaced seed, a mean that hides a regression, a fault nobody sees (R 0x0A)."""

import json
import math
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.evaluation_publication import (
    Cell,
    EvaluationFixture,
    cells,
    entropy,
    jaccard,
    load_variation,
    paired,
    summary,
)
from oracles.routed.evaluation_publication_failures import Fault, detection, injected, record, recovered, recovery
from oracles.routed.evaluation_publication_selection import release, select

BASELINE, LEARNED = "mixed_rank16", "learned_shared_a_top2"


@pytest.fixture(scope="module")
def fixture() -> EvaluationFixture:
    return EvaluationFixture.model_validate_json(load("evaluation_publication").fixture_bytes())


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("candidates", 3, "route"), "uniform", "candidates"),
        (("candidates", 3, "scores", "domain_beta"), 0.70, "mean quality"),
        (("nuisance", 2, "offset"), 0.0, "common offsets"),
        (("attempts", 2, "outcome"), "quality", "attempts kept"),
        (("splits", "held_out"), [8, 10], "splits"),
        (("selection", "direction"), "lower", "declared rule"),
        (("routing", 3, "materialized"), 8, "materialised and selected rows"),
        (("phases", 6, "low_rank"), 15, "work units"),
        (("faults", 0, "detector"), "route", "faults of adapter_identity are detected"),
        (("faults", 35, "field"), "/nowhere", "faults of cross_contract are detected"),
    ],
)
def test_a_wrong_field_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("evaluation_publication")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    reduce(lambda inner, step: inner[step], path, document)[last] = value
    assert rejection(oracle, document) == check


def test_pairs_need_the_same_nuisance_on_both_sides(fixture: EvaluationFixture) -> None:
    measured = cells(fixture)
    assert summary(paired(measured, LEARNED, BASELINE, 4) or ()).mean == pytest.approx(0.04)
    missing = {cell: m for cell, m in measured.items() if cell != Cell(BASELINE, "base_retention", 0)}
    assert paired(missing, LEARNED, BASELINE, 4) is None


def test_a_regression_outside_its_margin_is_not_bought_by_the_target(fixture: EvaluationFixture) -> None:
    reference, *_, am_lora = fixture.candidates
    better = am_lora.scores.model_copy(update={"domain_alpha": 0.99})
    candidate = am_lora.model_copy(update={"scores": better})
    chosen = select((reference, candidate), fixture.selection)
    assert chosen == reference


def test_equal_candidates_are_taken_in_candidate_order(fixture: EvaluationFixture) -> None:
    reference = fixture.candidates[0]
    twin = reference.model_copy(update={"candidate": "twin"})
    assert select((reference, twin), fixture.selection) == reference
    other = fixture.selection.model_copy(update={"tie_break": "reverse_candidate_order"})
    assert select((reference, twin), other) == twin


def test_a_safe_improvement_is_released_and_a_regression_is_not(fixture: EvaluationFixture) -> None:
    rule = fixture.selection
    safe = rule.held_out.model_copy(update={"base": 0.0})
    assert release(rule) == "no_release"
    assert release(rule.model_copy(update={"held_out": safe})) == "release"


@given(st.lists(st.floats(0.01, 5.0), min_size=1, max_size=6))
def test_entropy_lies_between_one_branch_and_a_uniform_route(mass: list[float]) -> None:
    assert -1e-12 <= entropy(mass) <= math.log(len(mass)) + 1e-12


@given(st.lists(st.integers(1, 50), min_size=2, max_size=6), st.integers(2, 5))
def test_load_variation_does_not_depend_on_the_number_of_rows(counts: list[int], factor: int) -> None:
    assert load_variation([factor * n for n in counts]) == pytest.approx(load_variation(counts))


def test_degenerate_routing_is_refused() -> None:
    assert (jaccard((), ()), jaccard((0,), (1,))) == (1.0, 0.0)
    with pytest.raises(FixtureRefusedError):
        entropy((0.0, 0.0))
    with pytest.raises(FixtureRefusedError):
        load_variation((0, 0))


def test_a_fault_is_named_by_its_owner_and_recovers_there() -> None:
    fault = Fault(loop=6, field="/dare/rescale", value="none", detector="DARE expectation error")
    found = record(fault)
    assert found["detector"] == fault.detector
    assert (found["owner"], found["invariant"], found["category"]) == ("composition_merge", "R 0x05F", "composition")
    assert len(found) == 10
    assert recovery(fault)
    assert not recovered(restored=True, test_passes=False, ceiling_unchanged=True)


def test_a_harmless_change_or_an_unknown_field_detects_nothing() -> None:
    assert detection(6, "/dare/rescale", '"inverse_density"') is None
    assert detection(6, "/nowhere", "1") is None
    assert injected([1, 2], ("5",), 0) is None
