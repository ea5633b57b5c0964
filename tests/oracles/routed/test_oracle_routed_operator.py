"""The routed operator's traps: a wrong choice of route keeps every shape and fails its own check (R 0x01, 0x02)."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.mixture import router_backward, selected_softmax, top_k

LOGITS = st.lists(st.floats(-8.0, 8.0), min_size=2, max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("tie_break", "reverse_candidate_order", "ties: logit descending, then candidate order"),
        ("normalization", "full_with_losers_zeroed", "losses"),
        ("k", 1, "selected_top2 ids"),
        ("saturated_logits", [16.0, 0.0, -15.0], "saturated logits"),
    ],
)
def test_another_route_under_the_same_shapes_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("routed_operator")
    document = json.loads(oracle.fixture_bytes())
    document[field] = value
    assert rejection(oracle, document) == check


def test_a_margin_below_the_printed_one_fails_before_any_gradient() -> None:
    oracle = load("routed_operator")
    document = json.loads(oracle.fixture_bytes())
    document["b"][1] = 1.5
    assert rejection(oracle, document) == "router logits"


def test_more_experts_than_candidates_cannot_be_selected() -> None:
    with pytest.raises(FixtureRefusedError):
        top_k((1.0, 2.0), 3)


@given(LOGITS, st.data())
def test_selected_gates_sum_to_one_and_losers_are_zero(z: tuple[float, ...], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(z)))
    support = top_k(z, k)
    gates = selected_softmax(z, support)
    assert math.isclose(math.fsum(gates), 1.0)
    assert all(gates[j] == 0.0 for j in range(len(z)) if j not in support)


@given(LOGITS, st.floats(-100.0, 100.0))
def test_a_constant_on_every_credit_moves_no_logit(z: tuple[float, ...], constant: float) -> None:
    gates = selected_softmax(z, top_k(z, len(z)))
    credit = tuple(math.sin(3.0 * j) for j in range(len(z)))
    moved = tuple(q + constant for q in credit)
    before, after = router_backward((gates,), (credit,))[0], router_backward((gates,), (moved,))[0]
    assert max(abs(x - y) for x, y in zip(before, after, strict=True)) < 1e-11
    assert abs(math.fsum(before)) < 1e-14


@given(LOGITS)
def test_top_1_leaves_the_router_without_a_gradient(z: tuple[float, ...]) -> None:
    gates = selected_softmax(z, top_k(z, 1))
    assert router_backward((gates,), (tuple(range(len(z))),))[0] == (0.0,) * len(z)
