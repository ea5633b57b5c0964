"""Sparse decode state: each failure of C 0x05U keeps the shapes and fails the check of its step."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.mod_sparse_kv_state import TornTokenError, counts, empty, publish, published, stage
from oracles.mutation import rejection
from oracles.registry import load


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("rope_position", "slot", "position of the last query"),
        ("own_row", "hidden", "visible to the last token"),
        ("publication", "layer_by_layer", "predecessor digest is unchanged"),
        ("rollback", "token_count", "rows after rollback to T = 4"),
        ("failure", {"token": 4, "after_layer": 2}, "staged at the fault"),
    ],
)
def test_each_failure_of_the_lab_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("mod_sparse_kv")
    document = json.loads(oracle.fixture_bytes())
    document[field] = value
    assert rejection(oracle, document) == check


def test_a_token_with_an_open_layer_is_not_published() -> None:
    with pytest.raises(TornTokenError, match="1 of 2 layers closed"):
        publish(empty(2), stage(empty(2), 10, (True,)), 0)


def test_a_fenced_generation_is_named() -> None:
    with pytest.raises(TornTokenError, match="generation 0 is fenced; 3 is current"):
        publish(empty(1)._replace(generation=3), stage(empty(1), 10, (False,)), 0)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=12))
def test_the_frontier_counts_tokens_and_each_layer_counts_its_own_rows(trace: list[tuple[bool, bool, bool]]) -> None:
    snapshot = empty(3)
    for t, column in enumerate(trace):
        staged = stage(snapshot, 100 + t, column)
        assert not published(snapshot, staged[:2], 0)
        snapshot = publish(snapshot, staged, 0)
    assert snapshot.tokens == len(trace)
    assert counts(snapshot) == tuple(sum(column[layer] for column in trace) for layer in range(3))
    assert all(list(rows) == sorted(rows) for rows in snapshot.rows)
