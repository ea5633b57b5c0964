"""Continual state's traps: two overlaps, a softmax over nothing, one scale for two, an order that vanished (R 0x06)."""

import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.continual_state import ContinualFixture, code_overlap, entry_l1, paper_overlap, remaining
from oracles.routed.continual_state_history import (
    backward_terms,
    final_accuracy,
    forgetting,
    ledgers,
    state_identity,
    transitions,
)


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("am", "softmax_axis"), "each_branch_alone", "branch gates"),
        (("am", "changed_rater"), [1.0, 1.0], "task-1 rater before and after"),
        (("cat", "scale_enters"), "nothing", "scale encoded in the new block"),
        (("cat", "s_new"), 1.0, "scales"),
        (("capacity", "ranks"), [1, 1, 2], "dimension and ranks"),
        (("olora", "lambda2"), 0.0, "regularizer"),
        (("evaluation", "R", 1, 0), 0.95, "evaluation matrix"),
        (("releases", 0), ["exact_deltas"], "releases"),
    ],
)
def test_a_wrong_choice_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("continual_state")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    reduce(lambda inner, step: inner[step], path, document)[last] = value
    assert rejection(oracle, document) == check


def test_scaling_an_old_basis_scales_the_two_overlaps_differently() -> None:
    U, A = ((1.0,), (0.0,)), ((0.5,), (0.25,))
    doubled = ((2.0,), (0.0,))
    assert paper_overlap(doubled, A) == 4.0 * paper_overlap(U, A)
    old, new = ((1.0, 0.0),), ((0.5, 0.25),)
    assert entry_l1(code_overlap(((2.0, 0.0),), new)) == 2.0 * entry_l1(code_overlap(old, new))


def test_ranks_over_the_ambient_dimension_are_refused() -> None:
    assert remaining(3, (1, 1)) == 1
    with pytest.raises(FixtureRefusedError):
        remaining(3, (2, 2))


def test_the_same_tasks_in_another_order_are_another_state() -> None:
    history = ContinualFixture.model_validate_json(load("continual_state").fixture_bytes()).history
    swapped = history.model_copy(update={"tasks": (history.tasks[0], history.tasks[2], history.tasks[1])})
    assert state_identity(swapped) != state_identity(history)
    assert transitions(swapped)[0] == transitions(history)[0]
    assert set(transitions(swapped)[1:]).isdisjoint(transitions(history))


def test_a_basis_alone_trains_on_but_neither_serves_nor_rolls_back() -> None:
    assert ledgers(("task_basis",)) == (False, True, False)


@given(st.lists(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), min_size=3, max_size=3))
def test_forgetting_is_never_below_the_backward_fall(rows: list[list[float]]) -> None:
    R = tuple(map(tuple, rows))
    assert all(f >= max(0.0, -b) - 1e-12 for f, b in zip(forgetting(R), backward_terms(R), strict=True))
    assert 0.0 <= final_accuracy(R) <= 1.0
