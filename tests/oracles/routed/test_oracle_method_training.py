"""The traps of three training methods: two losses called balance, labels that leak, votes that tie (R 0x03)."""

import json
import math
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.method_training import balance, balance_gradient, choose, spread, vote
from oracles.routed.method_training_mole import gate_balance
from oracles.routed.method_training_states import moves

POSITIVE = st.lists(st.floats(0.1, 5.0), min_size=2, max_size=8).map(tuple)


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("loramoe", "sample_role", 0), "task", "role weights"),
        (("loramoe", "epsilon"), 0.0, "epsilon"),
        (("loramoe", "layers"), 1, "layers and projections"),
        (("mixture", "domain"), [0, 1, 1], "domain histogram of the window"),
        (("record", "tie_break"), "highest_index", "selection policy"),
        (("record", "router_input"), "domain_label", "label, router input and inference label"),
        (("record", "optimizer_restore"), "moments_cross_the_stage", "stage parent proves no moments"),
        (("record", "frozen"), ["base.weight"], "frozen names of stage 2"),
        (("stage2", "label"), 0, "stage-2 loss"),
        (("mole", "tau"), 1.0, "mean gates q"),
    ],
)
def test_a_wrong_choice_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("method_training")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    reduce(lambda inner, step: inner[step], path, document)[last] = value
    assert rejection(oracle, document) == check


def test_votes_and_last_routers_may_disagree() -> None:
    assert choose((2, 2, 0), "router_vote", "lowest_index") == 2
    assert choose((2, 2, 0), "last_router", "lowest_index") == 0
    assert (vote((1, 0), "lowest_index"), vote((1, 0), "highest_index")) == (0, 1)


def test_the_pinned_name_filter_leaves_the_temperature_out() -> None:
    assert moves("mole_paper", "gate.tau")
    assert not moves("mole_pinned", "gate.tau")


@given(POSITIVE)
def test_sample_variance_is_population_variance_times_n_over_n_minus_one(z: tuple[float, ...]) -> None:
    assert math.isclose(spread(z, 1) * (len(z) - 1), spread(z, 0) * len(z), abs_tol=1e-12)


@given(POSITIVE)
def test_the_paper_form_scales_with_traffic_and_the_squared_form_does_not(z: tuple[float, ...]) -> None:
    doubled = tuple(2.0 * x for x in z)
    assert math.isclose(balance(doubled, "paper", 0.0), 2.0 * balance(z, "paper", 0.0), abs_tol=1e-12)
    assert math.isclose(balance(doubled, "code", 0.0), balance(z, "code", 0.0), abs_tol=1e-12)


@given(POSITIVE)
def test_equal_traffic_has_no_balance_gradient(z: tuple[float, ...]) -> None:
    assert balance_gradient((z[0],) * len(z), "paper", 1e-10) == pytest.approx((0.0,) * len(z), abs=1e-12)


def test_a_gate_that_never_opens_is_punished_without_bound() -> None:
    assert gate_balance(((1e-9, 1.0 - 1e-9),)) > 20.0
    assert gate_balance(((0.5, 0.5),)) == pytest.approx(2.0 * math.log(2.0))
