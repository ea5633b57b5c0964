"""AdaLoRA's traps: each keeps the tensors' shapes and fails a named check (V 0x03K)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.adalora import Schedule, Sensitivity, averages, budget, importance, masks, phase, retained

FIXTURE = Schedule(b0=6, b_target=3, T=10, ti=2, tf=2, interval=4, steps=(0,))
HALVES = Sensitivity(beta1=0.5, beta2=0.5, snapshots=2, slice="mean", parameter="post_update", learning_rate=0.5)


@pytest.mark.parametrize(
    ("section", "field", "value", "check"),
    [
        ("sensitivity", "slice", "sum", "scores in order"),
        ("sensitivity", "parameter", "pre_update", "scores in order"),
        ("sensitivity", "snapshots", 1, "averages of importance 3"),
        ("projection", "scope", "per_module", "rank pattern"),
        ("projection", "ties", "fill", "strict threshold underfills"),
        ("projection", "zeroes", "triplet", "vector entries a mask keeps"),
        ("scale", "rank", "active", "scale of q_proj"),
        ("schedule", "interval", 3, "mask events"),
    ],
)
def test_a_plausible_wrong_choice_fails_its_check(section: str, field: str, value: object, check: str) -> None:
    oracle = load("adalora")
    document = json.loads(oracle.fixture_bytes())
    document[section][field] = value
    assert rejection(oracle, document) == check


def test_a_cleared_gradient_scores_nothing() -> None:
    assert importance(2.5, 0.0, HALVES) == 0.0
    assert averages(0.0, HALVES, 2).score == 0.0


def test_an_interval_of_two_fits_the_printed_table_too() -> None:
    other = FIXTURE.model_copy(update={"interval": 2})
    assert [masks(t, other) for t in (0, 2, 3, 4, 8, 9)] == [False, False, False, True, True, True]


def test_the_printed_equation_exceeds_the_initial_budget() -> None:
    assert budget(2, FIXTURE, printed=True) == pytest.approx(3 + 3 * (4 / 3) ** 3)
    assert budget(2, FIXTURE) == 6


def test_a_late_phase_never_masks_at_the_interval_but_at_every_step() -> None:
    assert [(t, masks(t, FIXTURE)) for t in (9, 10, 11)] == [(9, True), (10, True), (11, True)]
    assert phase(8, FIXTURE) == "reduction"


@given(st.integers(0, 10), st.integers(0, 10))
def test_the_budget_never_grows(one: int, other: int) -> None:
    early, late = sorted((one, other))
    assert budget(early, FIXTURE) >= budget(late, FIXTURE) >= 3


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.integers(0, 8))
def test_a_strict_threshold_never_exceeds_the_budget_and_fill_meets_it(scores: list[float], wanted: int) -> None:
    strict = sum(retained(tuple(scores), wanted, "strict"))
    assert strict <= sum(retained(tuple(scores), wanted, "fill")) == min(wanted, len(scores))
