"""The multimodal transition: each collapsed distinction of C 0x07M fails the check of its step."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.conditional.multimodal_stage import conditional
from oracles.conditional.multimodal_stage_operators import MultimodalFixture, admit, capacity
from oracles.mutation import rejection
from oracles.registry import load

EXPERT_CHOICES = st.lists(st.permutations(range(4)).map(lambda order: (order[0], order[1])), min_size=1, max_size=20)


def fixture() -> MultimodalFixture:
    """The fixture of the oracle."""
    return MultimodalFixture.model_validate_json(load("multimodal_stage").fixture_bytes())


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("population", "valid_rows", "materialised router rows"),
        ("second_choice", "second_largest", "second choices"),
        ("admission", "by_probability", "rows that lose both routes"),
        ("second_offset", "own_count", "cf 0.4: executed routes"),
        ("combine", "raw_survivors", "cf 1.5: clone error"),
        ("router_input", "hidden_and_modality", "gate logits"),
        (
            "setup_calls",
            ["initialize_vision_modules", "initialize_moe_modules"],
            "Stage III trainable, pinned code",
        ),
        ("min_capacity", 4, "cf 0.4: capacity"),
    ],
)
def test_each_collapsed_distinction_fails_its_check(field: str, value: object, check: str) -> None:
    oracle = load("multimodal_stage")
    document = json.loads(oracle.fixture_bytes())
    document[field] = value
    assert rejection(oracle, document) == check


def test_the_minimum_capacity_wins_over_a_tight_factor() -> None:
    assert [capacity(fixture(), 12, factor) for factor in (0.1, 0.5, 0.6)] == [3, 3, 4]


def test_equal_totals_leave_the_conditionals_free() -> None:
    assert conditional(((2, 0), (0, 2))) == ((1.0, 0.0), (0.0, 1.0))
    assert conditional(((1, 1), (1, 1))) == ((0.5, 0.5), (0.5, 0.5))


@given(EXPERT_CHOICES, st.integers(1, 8))
def test_no_expert_executes_more_than_its_capacity(choices: list[tuple[int, int]], C: int) -> None:
    first, second = tuple(a for a, _ in choices), tuple(b for _, b in choices)
    p = ((0.25,) * 4,) * len(choices)
    admitted = admit(fixture(), p, first, second, C)
    executed = [e for t, pair in enumerate(admitted) for e, kept in zip(choices[t], pair, strict=True) if kept]
    requested = [e for pair in choices for e in pair]
    assert [executed.count(e) for e in range(4)] == [min(requested.count(e), C) for e in range(4)]
