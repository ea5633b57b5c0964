"""Causal decisions: each failure of C 0x05J keeps the binary shape and fails the check of its step."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.mod_causal import bce, confusion, teacher
from oracles.mutation import rejection
from oracles.registry import load


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("predictor_input", "attached", "stopped input: VJP into X"),
        ("delta_gate", "predictor_probability", "update of row 3: r times the delta"),
        ("comparator", "greater_or_equal", "FP"),
        ("lambda_r", 0.25, "direct BCE"),
        ("C", 1, "token 1 in its prefix top-C"),
    ],
)
def test_each_failure_of_the_lab_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("mod_causal")
    document = json.loads(oracle.fixture_bytes())
    document[field] = value
    assert rejection(oracle, document) == check


def test_a_threshold_outside_the_unit_interval_is_refused() -> None:
    oracle = load("mod_causal")
    document = json.loads(oracle.fixture_bytes())
    document["thresholds"] = [0.5, 0.55, 1.0]
    assert rejection(oracle, document) == "contract"


def test_padding_is_never_a_teacher_row() -> None:
    assert teacher((0.1, 0.2, 9.0), (True, True, False), 1) == (False, True, False)


@given(st.floats(-30.0, 30.0), st.booleans())
def test_bce_is_the_negative_log_likelihood(logit: float, z: bool) -> None:
    probability = 1.0 / (1.0 + math.exp(-logit if z else logit))
    assert math.isclose(bce(logit, z), -math.log(probability), rel_tol=1e-9, abs_tol=1e-12)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_selected_minus_teacher_count_is_fp_minus_fn(pairs: list[tuple[bool, bool]]) -> None:
    decided, target = [a for a, _ in pairs], [b for _, b in pairs]
    counts = confusion(decided, target)
    assert sum(counts) == len(pairs)
    assert sum(decided) - sum(target) == counts.fp - counts.fn
