"""Composition's traps: each wrong choice keeps the shapes and fails a named check (R 0x05J)."""

import json

import pytest

from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.composition_merge import Ties, elect, reduce_aligned, trim


@pytest.mark.parametrize(
    ("section", "field", "value", "check"),
    [
        ("cat", "weights_enter", "B", "A_cat"),
        ("svd", "rank", 2, "rank-1 approximation"),
        ("linear", "sign_enters", "B", "A_lin"),
        ("ties", "election", "frequency", "TIES signs"),
        ("ties", "reduction", "disjoint_sum", "TIES merge"),
        ("dare", "rescale", "none", "DARE expectation error"),
        ("dynamic", "gate", "top1", "gates"),
        ("quantizer", "rounding", "half_away", "ties round to even"),
    ],
)
def test_another_choice_under_the_same_shapes_fails_its_check(
    section: str, field: str, value: object, check: str
) -> None:
    oracle = load("composition_merge")
    document = json.loads(oracle.fixture_bytes())
    document[section][field] = value
    assert rejection(oracle, document) == check


def test_trim_keeps_the_earlier_of_equal_magnitudes() -> None:
    assert trim((1.0, -2.0, 2.0, 2.0), 0.5) == (0.0, -2.0, 2.0, 0.0)


def test_a_coordinate_without_movement_takes_the_stated_value() -> None:
    ties = Ties(vectors=((1.0,),), density=1.0, election="total", reduction="disjoint_mean", empty_coordinate=0.0)
    assert elect((3.0, -3.0), "total") == 0
    assert reduce_aligned((3.0, -3.0), 0, ties) == 0.0
    assert reduce_aligned((3.0, -1.0, 1.0), 1, ties) == 2.0
