"""Composed routing: each substitution of C 0x06K keeps the shapes and fails the check of its step."""

import json

import pytest

from oracles.conditional.mode_composition import outcome
from oracles.conditional.mode_composition_operators import request, route_backward
from oracles.mutation import rejection
from oracles.registry import load


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("expert_input", "gathered", "staged Y"),
        ("expert_helper", "full_output", "staged Y"),
        ("depth_gate", "attention_only", "staged Y"),
        ("gates", "selected_softmax", "staged Y"),
        ("no_op", "identity_output", "no-op row is its post-attention state"),
        ("load_population", "all_rows", "staged expert load"),
        ("expert_capacity", 2, "admitted under capacity 1"),
        ("depth_capacity", 3, "depth rows and skipped rows"),
    ],
)
def test_each_substitution_of_the_lab_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("mode_composition")
    document = json.loads(oracle.fixture_bytes())
    document[field] = value
    assert rejection(oracle, document) == check


def test_a_skipped_depth_row_has_no_expert_outcome_whatever_its_path() -> None:
    assert {outcome(False, path, executed=True) for path in (None, 0, 2)} == {("depth_skip", False, "absent", "none")}


def test_one_selected_path_gives_the_router_a_gradient_only_through_the_full_softmax() -> None:
    R = ((1.0, -1.0), (0.0, 2.0))
    full = request((1.0, 0.0), R, 1, "full_softmax")
    selected = request((1.0, 0.0), R, 1, "selected_softmax")
    assert selected.gates == (1.0,)
    assert route_backward(selected, (3.0,), "selected_softmax") == (0.0, 0.0)
    first, second = route_backward(full, (3.0,), "full_softmax")
    assert first == pytest.approx(3.0 * full.p[0] * full.p[1])
    assert first == pytest.approx(-second)
