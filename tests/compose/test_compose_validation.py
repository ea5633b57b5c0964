"""Requests the engine refuses before reading a tensor, each by its own code and place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compose import ComposeRefusedError, ComposeRequest, Member, plan
from schemas.methods import Method, Space
from tests.compose.building import member, random_pair, request


@pytest.fixture
def one(tmp_path: Path) -> Member:
    return member(tmp_path, "one", {"m": random_pair(2, 4, 3, seed=1)})


def codes(asked: ComposeRequest) -> list[tuple[str, tuple[str | int, ...]]]:
    with pytest.raises(ComposeRefusedError) as refused:
        plan(asked)
    return [(problem.code, problem.path) for problem in refused.value.problems]


def test_no_members_are_refused() -> None:
    assert codes(request("cat", [])) == [("MEMBERS_EMPTY", ("members",))]


def test_an_unknown_method_is_refused(one: Member) -> None:
    asked = request("cat", [one])
    # Past the type checker of the tests, as an unchecked caller would come.
    object.__setattr__(asked, "method", "average")
    assert codes(asked)[0] == ("METHOD_UNKNOWN", ("method",))


def test_an_undeclared_or_undefined_space_is_refused(one: Member) -> None:
    assert codes(request("cat", [one], space="factor")) == [("SPACE_UNDEFINED", ("space",))]
    assert codes(request("factor_linear", [one], space="delta"))[0] == ("SPACE_UNDEFINED", ("space",))


def test_dense_sum_is_no_adapter(one: Member) -> None:
    assert codes(request("dense_sum", [one])) == [("METHOD_DENSE_ONLY", ("method",))]


@pytest.mark.parametrize(
    ("method", "space", "missing"),
    [
        ("delta_svd", "delta", ["rank"]),
        ("ties", "delta", ["rank", "ties"]),
        ("ties", "factor", ["ties"]),
        ("dare_linear", "factor", ["dare"]),
        ("dare_ties", "delta", ["rank", "ties", "dare"]),
        ("magnitude_prune", "factor", ["prune"]),
    ],
)
def test_a_missing_choice_is_named(one: Member, method: Method, space: Space, missing: list[str]) -> None:
    assert codes(request(method, [one], space=space)) == [("CHOICE_MISSING", ("choices", name)) for name in missing]


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_not_finite_is_refused(one: Member, weight: float) -> None:
    assert codes(request("cat", [replace(one, weight=weight)])) == [("WEIGHT_NOT_FINITE", ("members", 0, "weight"))]


def test_a_scale_that_is_not_finite_is_refused(one: Member) -> None:
    factor = replace(one.factors[0], scale=float("inf"))
    assert codes(request("cat", [replace(one, factors=(factor,))])) == [("SCALE_NOT_FINITE", ("members", 0, "m"))]


def test_a_member_without_factors_and_a_module_twice_are_refused(one: Member) -> None:
    assert codes(request("cat", [one, replace(one, factors=())])) == [("FACTORS_EMPTY", ("members", 1))]
    assert codes(request("cat", [replace(one, factors=(*one.factors, *one.factors))])) == [
        ("MODULE_TWICE", ("members", 0, "m"))
    ]


def test_a_transposed_factor_and_a_wrong_rank_are_refused(one: Member) -> None:
    factor = one.factors[0]
    turned = replace(factor, a=replace(factor.a, shape=factor.a.shape[::-1]))
    assert codes(request("cat", [replace(one, factors=(turned,))]))[0] == (
        "FACTOR_SHAPE",
        ("members", 0, "m", "lora_A"),
    )
    wrong = replace(factor, rank=3)
    assert codes(request("cat", [replace(one, factors=(wrong,))])) == [
        ("FACTOR_SHAPE", ("members", 0, "m", "lora_A")),
        ("FACTOR_SHAPE", ("members", 0, "m", "lora_B")),
    ]
    flat = replace(factor, a=replace(factor.a, shape=(6,)))
    assert codes(request("cat", [replace(one, factors=(flat,))])) == [("FACTOR_SHAPE", ("members", 0, "m", "lora_A"))]


def test_a_dtype_that_is_no_float_is_refused(one: Member) -> None:
    factor = one.factors[0]
    whole = replace(factor, b=replace(factor.b, dtype="I64"))
    assert codes(request("cat", [replace(one, factors=(whole,))])) == [
        ("DTYPE_UNSUPPORTED", ("members", 0, "m", "lora_B"))
    ]


def test_members_that_disagree_on_a_module_are_refused(one: Member, tmp_path: Path) -> None:
    other = member(tmp_path, "other", {"m": random_pair(2, 5, 3, seed=2)})
    assert codes(request("cat", [one, other])) == [("MODULE_SHAPES_DIFFER", ("m",))]


@pytest.mark.parametrize("rank", [0, 4])
def test_a_rank_of_zero_or_above_the_smaller_side_is_refused(one: Member, rank: int) -> None:
    asked = request("delta_svd", [one], rank=1)
    # The schema refuses rank 0 itself; the engine does not rely on it.
    object.__setattr__(asked, "choices", asked.choices.model_copy(update={"rank": rank}))
    assert codes(asked) == [("RANK_IMPOSSIBLE", ("m", "rank"))]


def test_all_problems_are_told_at_once(one: Member) -> None:
    asked = request("delta_svd", [replace(one, weight=float("nan"))], rank=4)
    assert [code for code, _ in codes(asked)] == ["WEIGHT_NOT_FINITE", "RANK_IMPOSSIBLE"]
