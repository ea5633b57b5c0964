"""SwitchHead's traps keep every shape: competitive gates, shared selections, other ties (C 0x03M)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.attention import sigmoid
from oracles.conditional.switchhead import paper_macs
from oracles.mutation import rejection
from oracles.registry import load


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("gate", "selected_softmax", "no row of selected gates sums to 1"),
        ("selection", "destination_reuses_source", "destination ids"),
        ("tie_break", "higher_id_first", "ties: lower id first"),
        ("k_source", 1, "source ids"),
        ("k_destination", 3, "destination ids"),
    ],
)
def test_another_operator_under_the_same_shapes_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("switchhead")
    document = json.loads(oracle.fixture_bytes())
    document[field] = value
    assert rejection(oracle, document) == check


def test_swapped_value_experts_fail_the_mixture_before_any_output() -> None:
    oracle = load("switchhead")
    document = json.loads(oracle.fixture_bytes())
    document["W_V"][1] = document["W_V"][1][::-1]
    assert rejection(oracle, document) == "V_mix"


def test_paper_macs_grow_with_the_square_of_the_chunk_in_their_map_term_alone() -> None:
    linear = 2 * 4 + 2 * 2 * 2 * 3 + 2 * 4
    assert [paper_macs(T, 1, 2, 2, 2) for T in (1, 2, 4)] == [2 * (linear * T + 4 * T**2) for T in (1, 2, 4)]


@given(st.floats(-700.0, 700.0))
def test_the_sigmoid_keeps_its_symmetry_without_overflow(x: float) -> None:
    assert 0.0 <= sigmoid(x) <= 1.0
    assert abs(sigmoid(x) + sigmoid(-x) - 1.0) < 1e-15
