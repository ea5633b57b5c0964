"""Contracts of the family: a word of another method is a difference, an unverified one is not (C 0x08)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.contracts import Contract, differing, unverified
from oracles.conditional.family_contracts import FamilyFixture, records, work_vectors
from oracles.mutation import rejection
from oracles.registry import load
from oracles.runner import run


def fixture() -> FamilyFixture:
    """The fixture of the oracle."""
    return FamilyFixture.model_validate_json(load("family_contracts").fixture_bytes())


CONTRACTS = st.sampled_from(sorted(records(fixture()).items())).map(lambda item: item[1])


@pytest.mark.parametrize(
    ("method", "field", "word"),
    [
        ("moa", "kv_payload", "head_K_mixed_V"),
        ("integrated", "kv_row_policy", "sparse_receipts"),
        ("moe_llava", "padding_router", "valid_only"),
    ],
)
def test_a_word_of_another_method_fails_the_distances(method: str, field: str, word: str) -> None:
    oracle = load("family_contracts")
    document = json.loads(oracle.fixture_bytes())
    document["contracts"][method][field] = word
    assert rejection(oracle, document) == "distances"


def test_a_word_no_method_uses_is_refused() -> None:
    oracle = load("family_contracts")
    document = json.loads(oracle.fixture_bytes())
    document["contracts"]["moa"]["route_weight"] = "p_over_Z"
    assert rejection(oracle, document) == "contract"


def test_the_printed_staged_score_count_is_reported_and_the_true_one_kept() -> None:
    found = [(c.name, c.expected, c.stated) for c in run("family_contracts").disagreements]
    assert found == [("work of staged", (8, None, None, 2, 2, 2), (6, None, None, 2, 2, 2))]


def test_a_missing_counter_is_not_zero() -> None:
    assert work_vectors(fixture().work)["moa"][3:5] == (None, None)


@given(CONTRACTS, CONTRACTS)
def test_the_known_distance_is_symmetric_and_zero_only_on_itself(left: Contract, right: Contract) -> None:
    assert differing(left, right) == differing(right, left)
    assert (differing(left, right) == ()) == (left == right)
    assert len(differing(left, right)) + unverified(left, right) <= 21
