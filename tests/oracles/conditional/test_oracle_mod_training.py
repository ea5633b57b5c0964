"""Mixture-of-Depths training: each failure of C 0x04K keeps the shapes and fails the check of its step."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.attention import stable_top
from oracles.conditional.mod_training import block_macs, causal
from oracles.mutation import rejection
from oracles.registry import load


@pytest.mark.parametrize(
    ("policy", "word", "check"),
    [
        ("domain", "all_rows", "score order"),
        ("tie_break", "higher_row_first", "ties: lower row first"),
        ("execution", "by_score", "execution order"),
        ("gate", "selected_softmax", "selected rows of Y"),
        ("gate", "sigmoid", "selected rows of Y"),
        ("helper", "full_output", "selected rows of Y"),
        ("skipped", "times_score", "skipped rows are exact identities"),
    ],
)
def test_each_failure_of_the_lab_fails_its_check(policy: str, word: str, check: str) -> None:
    oracle = load("mod_training")
    document = json.loads(oracle.fixture_bytes())
    document["policy"][policy] = word
    assert rejection(oracle, document) == check


def test_fewer_valid_rows_than_the_capacity_are_refused() -> None:
    oracle = load("mod_training")
    document = json.loads(oracle.fixture_bytes())
    document["valid"][1] = [True, True, False, False, False, False]
    assert rejection(oracle, document) == "contract"


def test_a_score_moved_without_changing_any_membership_is_noticed() -> None:
    oracle = load("mod_training")
    document = json.loads(oracle.fixture_bytes())
    document["X"][0][1][0] -= 0.25
    assert rejection(oracle, document) == "valid scores"


def test_causality_follows_positions_in_any_gather_order() -> None:
    assert causal((15, 10)) == ((True, True), (False, True))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=8), st.data())
def test_exactly_k_rows_are_chosen_and_ties_keep_the_earlier_row(scores: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(scores)))
    chosen = stable_top(scores, k)
    assert len(set(chosen)) == k
    worst = max(chosen, key=lambda i: (-scores[i], i))
    left_out = [i for i in range(len(scores)) if i not in chosen]
    assert all(scores[i] < scores[worst] or (scores[i] == scores[worst] and i > worst) for i in left_out)


@given(st.integers(1, 12), st.integers(1, 4))
def test_linear_terms_scale_with_rho_and_maps_with_its_square(rows: int, factor: int) -> None:
    linear, maps, mlp = block_macs(rows, 4, 6)
    assert block_macs(factor * rows, 4, 6) == (factor * linear, factor**2 * maps, factor * mlp)
