"""The runtime's traps: a plan that loses its tokens, one A for several, a slot that was republished (R 0x08)."""

import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.runtime_execution import RuntimeFixture, Selected, build_plan, factor_copies, flops, segments
from oracles.routed.runtime_execution_launch import reusable, stale

ROUTES = st.lists(
    st.lists(st.integers(0, 2), min_size=0, max_size=3, unique=True).map(
        lambda ids: tuple(Selected(expert=j, gate=1.0 / len(ids)) for j in ids)
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("scatter",), "packed_row_as_token", "shared-A output"),
        (("branches", 1, "dropout_mask"), "own", "one A serves every branch"),
        (("branches", 2, "version"), 18, "one A serves every branch"),
        (("lease", "adapters", 1, "slot_generation"), 99, "parts of the launch outside its lease"),
        (("launch", "plan_generation"), 42, "parts of the launch outside its lease"),
        (("bytes", "gate"), 4, "metadata bytes"),
        (("regimes", "k"), 1, "prefill rows and occurrences"),
    ],
)
def test_a_wrong_choice_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("runtime_execution")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    reduce(lambda inner, step: inner[step], path, document)[last] = value
    assert rejection(oracle, document) == check


def test_gates_that_do_not_sum_to_one_are_refused() -> None:
    oracle = load("runtime_execution")
    document = json.loads(oracle.fixture_bytes())
    document["routes"][0][0]["gate"] = 0.5
    assert rejection(oracle, document) == "contract"


def test_a_launch_after_eviction_is_stale_even_under_the_same_names() -> None:
    fixture = RuntimeFixture.model_validate_json(load("runtime_execution").fixture_bytes())
    gone = fixture.launch.adapters[2].model_copy(update={"resident": False})
    launch = fixture.launch.model_copy(update={"adapters": (*fixture.launch.adapters[:2], gone)})
    assert stale(launch, fixture.lease) == ("adapters[2].resident", "adapters[2] is not resident")


def test_equal_branches_with_a_nonlinearity_between_share_nothing() -> None:
    fixture = RuntimeFixture.model_validate_json(load("runtime_execution").fixture_bytes())
    bent = fixture.branches[0].model_copy(update={"between": "nonlinearity"})
    assert reusable(fixture.branches)
    assert not reusable((bent, bent, bent))


@given(ROUTES)
def test_every_occurrence_lands_in_the_segment_of_its_expert_once(routes: list[tuple[Selected, ...]]) -> None:
    plan = build_plan(routes)
    assert sorted(plan.permutation) == list(range(sum(map(len, routes))))
    for expert, ids in enumerate(segments(plan)):
        assert {plan.occurrences[q].expert for q in ids} <= {expert}
        assert list(ids) == sorted(ids)


@given(st.integers(1, 500), st.integers(1, 8))
def test_sharing_saves_nothing_for_one_expert_a_row(rows: int, k: int) -> None:
    independent, shared = flops(rows, rows * k)
    assert (independent == shared) == (k == 1)
    assert independent - shared == 2 * rows * (k - 1) * 2 * 3


def test_only_the_indexed_product_copies_factors() -> None:
    assert (factor_copies(8, 2, "indexed_bmm"), factor_copies(8, 2, "direct_index")) == (160, 0)
