"""Sharing's traps: copies of A are not one A, and the raw factors prove nothing (R 0x04)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.matrix import distance, matmul, scale
from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.shared_factor import (
    VARIANTS,
    SharedFixture,
    Variant,
    backward,
    factor_parameters,
    largest_rank,
    latent_backward,
    output,
    outside_rows,
    start,
)


@pytest.fixture(scope="module")
def fixture() -> SharedFixture:
    return SharedFixture.model_validate_json(load("shared_factor").fixture_bytes())


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("budget",), 119, "factor budget"),
        (("gauge", 0, 1), 0.5, "gauge"),
        (("kept", 1), [1, 0, 1, 1], "kept inputs a branch"),
        (("eta",), 0.5, "clones diverge after one step"),
        (("alpha",), 2.0, "independent output"),
        (("rank_witness", 2, "B", 2, 0), 0.0, "shares of the sum"),
    ],
)
def test_a_changed_field_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("shared_factor")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    inner = document
    for step in path:
        inner = inner[step]
    inner[last] = value
    assert rejection(oracle, document) == check


def test_the_gradient_of_one_expert_is_not_the_gradient_of_the_shared_factor(fixture: SharedFixture) -> None:
    point = start(fixture, "shared_A")
    clones = {k: v for k, v in point.items() if k != "A"} | {f"A{i}": fixture.A for i in range(3)}
    one = backward(fixture, clones)["A0"]
    assert distance(one, latent_backward(fixture, point)) > 0.05


def test_reading_one_expert_input_factor_for_all_changes_the_output(fixture: SharedFixture) -> None:
    independent = start(fixture, "independent")
    first = {**independent, **{f"A{i}": independent["A0"] for i in range(3)}}
    assert distance(output(fixture, first), output(fixture, independent)) > 0.1


@pytest.mark.parametrize("variant", VARIANTS)
@given(budget=st.integers(21, 5000))
def test_the_largest_rank_fits_and_the_next_does_not(variant: Variant, budget: int) -> None:
    r = largest_rank(variant, budget)
    assert factor_parameters(variant, r) <= budget < factor_parameters(variant, r + 1)


def test_rows_outside_the_shared_factor_are_seen() -> None:
    A = ((1.0, 0.0, 0.0),)
    assert outside_rows(scale(3.0, matmul(((1.0,), (2.0,)), A)), A) == 0.0
    assert outside_rows(((0.0, 2.0, 0.0),), A) == 2.0
