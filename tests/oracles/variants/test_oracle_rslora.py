"""rsLoRA's traps: a wrong scale keeps every shape and fails a named check (V 0x04K)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.errors import FixtureRefusedError
from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.rslora import Module, convert, gamma, scaling


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("rank_source", "global", "effective rank and alpha"),
        ("hotswap_scale", "stale", "scale after a hotswap from v_proj's shape to o_proj's"),
        ("merge_scale", "none", "merge with the stored scale"),
    ],
)
def test_a_wrong_scale_under_the_same_factors_fails_its_check(field: str, value: str, check: str) -> None:
    oracle = load("rslora")
    document = json.loads(oracle.fixture_bytes())
    document["patterned"][field] = value
    assert rejection(oracle, document) == check


@given(st.integers(1, 512), st.floats(0.5, 64))
def test_a_conversion_to_twice_the_rank_keeps_the_scale(r: int, alpha: float) -> None:
    classic, stable = convert(r, alpha, "lora")[0], convert(r, alpha, "rslora")[0]
    assert scaling(classic.alpha, classic.rank, "lora") == pytest.approx(scaling(alpha, r, "lora"), rel=1e-14)
    assert scaling(stable.alpha, stable.rank, "rslora") == pytest.approx(scaling(alpha, r, "rslora"), rel=1e-14)


@given(st.sampled_from([1, 4, 16, 64, 256, 1024]), st.floats(0.25, 2))
def test_the_learned_signal_follows_one_exponent(r: int, p: float) -> None:
    assert gamma(3.0, r, p) ** 2 * r == pytest.approx(9.0 * r ** (1.0 - 2.0 * p))


def test_a_patterned_rank_stabilised_conversion_is_refused() -> None:
    with pytest.raises(FixtureRefusedError, match="no rank or alpha pattern"):
        convert(2, 4.0, "rslora", (Module("q_proj", 4, 8.0),))


def test_the_two_rules_agree_only_at_rank_one() -> None:
    assert scaling(3.0, 1, "lora") == scaling(3.0, 1, "rslora") == 3.0
    assert scaling(4.0, 4, "rslora") == 2.0 * scaling(4.0, 4, "lora") == 2.0
