"""MoA's traps: another pairing, tie rule or backward rule keeps every shape and fails its own check (C 0x02K)."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.attention import attend, stable_top
from oracles.conditional.moa import logit_gradient
from oracles.errors import FixtureRefusedError
from oracles.matrix import softmax
from oracles.mutation import rejection
from oracles.registry import load

LOGITS = st.lists(st.floats(-6.0, 6.0), min_size=3, max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("output_ids", "reversed_slots", "one id indexes query and output expert"),
        ("tie_break", "higher_id_first", "ties: lower id first"),
        ("k", 3, "selected ids"),
        ("W_K", [[0.7, -0.4], [0.2, 0.5]], "Y"),
    ],
)
def test_another_operator_under_the_same_shapes_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("moa")
    document = json.loads(oracle.fixture_bytes())
    document[field] = value
    assert rejection(oracle, document) == check


def test_an_unstopped_denominator_fails_the_printed_gradient() -> None:
    oracle = load("moa")
    document = json.loads(oracle.fixture_bytes())
    document["router_row"]["denominator"] = "differentiated"
    assert rejection(oracle, document) == "stopped-denominator dL/dlogit"


def test_more_experts_than_the_pool_holds_are_refused() -> None:
    with pytest.raises(FixtureRefusedError, match="selected count"):
        stable_top((0.5, 0.5), 3)


def test_a_destination_that_sees_no_source_is_refused() -> None:
    with pytest.raises(FixtureRefusedError, match="visible sources"):
        attend((1.0,), ((1.0,),), ((1.0,),), (False,))


def test_an_invisible_source_receives_no_weight() -> None:
    a, u = attend((1.0,), ((9.0,), (0.0,)), ((5.0,), (2.0,)), (False, True))
    assert (a, u) == ((0.0, 1.0), (2.0,))


@given(LOGITS, st.data())
def test_only_the_stopped_rule_reaches_unselected_logits(z: tuple[float, ...], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(z) - 1))
    c = tuple(data.draw(st.floats(0.5, 2.0)) for _ in range(k))
    p = softmax(z)
    ids = stable_top(p, k)
    stopped, ordinary = (logit_gradient(p, ids, c, rule) for rule in ("stopped", "differentiated"))
    losers = [i for i in range(len(z)) if i not in ids]
    assert all(stopped[i] < 0.0 for i in losers)
    assert max(abs(ordinary[i]) for i in losers) < 1e-12
    assert abs(math.fsum(ordinary)) < 1e-12
    assert abs(math.fsum(stopped)) < 1e-12
