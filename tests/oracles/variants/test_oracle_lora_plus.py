"""LoRA+'s traps: the tensors are the same, the trajectory is not (V 0x05M)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.adamw import Adam, Group, start, update
from oracles.variants.lora_plus import LoraPlusFixture, exponents, grouped


def document() -> Any:
    return json.loads(load("lora_plus").fixture_bytes())


@pytest.mark.parametrize(
    ("path", "value", "check"),
    [
        (("ratio",), 1.0, "eta_A, lambda and eta_B"),
        (("resumed_groups",), "equal_rates", "restored groups resume the trajectory"),
        (("scheduler", "applies_to"), "group_a", "scheduled B rates"),
        (("width", "eta_a"), -0.5, "stable and efficient exponents"),
    ],
)
def test_another_rate_under_the_same_tensors_fails_its_check(path: tuple[str, ...], value: object, check: str) -> None:
    changed = document()
    place = changed if len(path) == 1 else changed[path[0]]
    place[path[-1]] = value
    assert rejection(load("lora_plus"), changed) == check


def test_a_trainable_bias_takes_the_rate_of_b_without_decay() -> None:
    fixture = LoraPlusFixture.model_validate_json(json.dumps(document()))
    for classifier in ("document", "pinned"):
        home = next(row for row in grouped(fixture, classifier) if "proj.bias" in row.members)
        assert (home.group, home.eta, home.decay) == ("groupB_no_decay", 16.0 * 1e-4, 0.0)


@given(st.floats(-1, 0))
def test_both_contributions_stay_order_one_only_where_the_rates_differ_by_the_width(eta_a: float) -> None:
    first, second, b, feature = exponents(eta_a, -1.0 - eta_a)
    assert (first, second) == pytest.approx((0.0, 0.0))
    assert (b == feature == 0.0) == (eta_a == -1.0)


def test_the_first_adamw_step_is_the_sign_of_the_gradient_and_the_decay() -> None:
    begun = start({"w": ((2.0, -4.0),)}, ("w",))
    moved = update(begun, {"w": ((3.0, -0.5),)}, {"w": Group(0.5, 0.25)}, Adam(0.9, 0.999, 0.0))
    assert moved.parameters["w"][0] == pytest.approx((2.0 - 0.5 * (1 + 0.5), -4.0 - 0.5 * (-1 - 1)))
    assert moved.m["w"][0] == pytest.approx((0.3, -0.05))
    assert moved.v["w"][0] == pytest.approx((0.009, 0.00025))
    assert moved.step == 1


def test_a_parameter_without_moments_never_moves() -> None:
    begun = start({"w": ((2.0,),), "frozen": ((1.0,),)}, ("w",))
    moved = update(begun, {"w": ((1.0,),), "frozen": ((1.0,),)}, {"w": Group(0.5, 0.5)}, Adam(0.9, 0.999, 1e-8))
    assert moved.parameters["frozen"] == ((1.0,),)
    assert set(moved.m) == {"w"}
