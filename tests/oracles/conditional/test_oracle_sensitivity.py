"""Sweeps vary one coordinate of one method; anything else is refused or fails its check (C 0x0AI)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.sensitivity import AnotherCurveError, Capacity, admission, join, selected_entropy, signature
from oracles.errors import FixtureRefusedError
from oracles.mutation import rejection
from oracles.registry import load


@pytest.mark.parametrize(
    ("path", "value", "check"),
    [
        (("mod_decode", "comparator"), "greater_or_equal", "p equal to tau is skipped"),
        (("padding", "population"), "valid_rows", "materialised rows"),
        (("contract", "route_weight"), "raw_sigmoid", "contract of the curve"),
        (("capacity", "requests"), [9, 7, 4, 4], "request histogram"),
        (("evidence", "latency_measured"), True, "contract"),
        (("evidence", "cross_method_ranking"), True, "contract"),
    ],
)
def test_a_changed_method_population_or_claim_is_rejected(path: tuple[str, str], value: object, check: str) -> None:
    oracle = load("sensitivity")
    document = json.loads(oracle.fixture_bytes())
    document[path[0]][path[1]] = value
    assert rejection(oracle, document) == check


def test_a_skipped_row_that_appends_fails_the_phase_table() -> None:
    oracle = load("sensitivity")
    document = json.loads(oracle.fixture_bytes())
    document["phases"][4]["attention_ran"] = True
    assert rejection(oracle, document) == "history, new, after"


def test_another_signature_is_named_and_refused() -> None:
    with pytest.raises(AnotherCurveError, match="is not a point of"):
        join(signature({"route_weight": "raw_r"}), {"route_weight": "raw_sigmoid"})


def test_weights_that_do_not_sum_to_one_have_no_entropy() -> None:
    with pytest.raises(FixtureRefusedError, match=r"entropy\.weights"):
        selected_entropy(((0.9, 0.2),))


@given(st.integers(2, 6))
def test_uniform_weights_have_entropy_one_at_any_width(k: int) -> None:
    assert selected_entropy(((1.0 / k,) * k,)) == pytest.approx(1.0)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6).map(tuple), st.floats(0.1, 3.0))
def test_admitted_dropped_and_unused_account_for_every_request_and_slot(
    requests: tuple[int, ...], factor: float
) -> None:
    capacity = Capacity(factor=(factor, factor, factor), requests=requests)
    C, requested, executed, dropped, unused = admission(capacity, factor)
    assert executed + dropped == requested
    assert executed + unused == len(requests) * C
    assert min(dropped, unused) >= 0
