"""A spec as people write it, and the exact choices it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.canonical import JsonObject
from schemas.errors import RefusedError, UsageProblemError
from schemas.methods import (
    ALIASES,
    METHODS,
    OPERATOR_VERSIONS,
    SPACES,
    Choices,
    DareChoices,
    SvdChoices,
    TiesChoices,
    ties_preset,
)
from schemas.model import validate
from schemas.spec import CompositionSpec, choices, named_method, with_seed

PLAIN: JsonObject = {
    "name": "support-bot",
    "base": "smollm2@1",
    "members": [{"ref": "qa@2", "weight": 1.0}, {"ref": "tone@1", "weight": -0.5}],
    "method": "cat",
    "space": "delta",
}


def read(**fields: Any) -> CompositionSpec:
    """The plain spec with other fields."""
    return validate(CompositionSpec, {**PLAIN, **fields})


def test_a_plain_spec_needs_no_more_than_name_base_members_method_and_space() -> None:
    spec = read()
    assert (spec.lane, spec.acknowledge, spec.rank) == ("static_fusion", (), None)
    assert named_method(spec) == ("cat", None, "delta")
    assert choices(spec, "cat", "delta") == Choices()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("members", []),
        ("members", [{"ref": "qa@2"}]),
        ("members", [{"ref": "qa@2", "weight": "1.0"}]),
        ("members", [{"ref": "qa@2", "weight": True}]),
        ("name", "Support Bot"),
        ("method", "concat"),
        ("rank", 0),
        ("rank", 2.5),
        ("ties", {"density": 0.0}),
        ("ties", {"preset": "mine", "density": 0.5}),
        ("dare", {"density": 1.5}),
        ("dare", {"density": 0.5, "seed": 7}),
        ("lane", "fusion"),
        ("acknowledge", ["lower"]),
        ("weights", [1.0]),
    ],
)
def test_a_field_that_cannot_be_read_is_named(field: str, value: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        read(**{field: value})
    assert {problem.path[0] for problem in caught.value.problems} == {field}


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_declares_its_method_and_space(alias: str) -> None:
    method, space = ALIASES[alias]
    assert named_method(read(method=alias, space=None)) == (method, alias, space)
    assert named_method(read(method=alias, space=space)) == (method, alias, space)
    other = "factor" if space == "delta" else "delta"
    with pytest.raises(UsageProblemError) as caught:
        named_method(read(method=alias, space=other))
    assert caught.value.code == "SPACE_CONTRADICTS_ALIAS"


def test_a_method_does_not_declare_a_space() -> None:
    assert named_method(read(method="ties", space=None)) == ("ties", None, None)


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("paper", {"values": "unweighted", "zero_sum": "zero", "reduce": "count"}),
        ("peft", {"values": "unweighted", "zero_sum": "plus", "reduce": "count"}),
        ("mergekit", {"values": "weighted", "zero_sum": "zero", "reduce": "weight_sum"}),
    ],
)
def test_a_ties_preset_is_resolved_into_its_choices(preset: Any, expected: dict[str, str]) -> None:
    spec = read(method="ties", space="factor", ties={"preset": preset, "density": 0.25})
    ties = choices(spec, "ties", "factor").ties
    assert ties == ties_preset(preset, 0.25)
    assert ties is not None
    assert ties.model_dump() == {"density": 0.25, "k_rule": "floor", "elect": "total", **expected}


def test_ties_choices_written_out_stay_as_written() -> None:
    spec = read(method="ties", space="factor", ties={"density": 0.2, "elect": "frequency"})
    assert choices(spec, "ties", "factor").ties == TiesChoices(density=0.2, elect="frequency")


def test_a_refactored_delta_gets_the_default_decomposition_and_nothing_else_does() -> None:
    asked: list[tuple[Any, Any, SvdChoices | None]] = [
        ("delta_svd", "delta", SvdChoices()),
        ("delta_svd", None, SvdChoices()),
        ("ties", "delta", SvdChoices()),
        ("magnitude_prune", "delta", SvdChoices()),
        ("ties", "factor", None),
        ("ties", None, None),
        ("cat", "delta", None),
        ("dense_sum", "delta", None),
    ]
    for method, space, expected in asked:
        assert choices(read(method=method, space=space), method, space).svd == expected
    own = read(method="delta_svd", svd={"split": "sqrt", "mode": "exact"})
    assert choices(own, "delta_svd", "delta").svd == SvdChoices(split="sqrt", mode="exact")


def test_a_missing_seed_is_drawn_and_a_given_one_stays() -> None:
    drawn = with_seed(read(method="dare_linear", space="factor", dare={"density": 0.5}), "123")
    assert choices(drawn, "dare_linear", "factor").dare == DareChoices(density=0.5, seed="123")
    given = read(method="dare_linear", space="factor", dare={"density": 0.5, "seed": "0"})
    assert with_seed(given, "123") == given
    assert with_seed(read(), "123") == read()


def test_every_method_has_spaces_an_operator_version_and_its_own_name() -> None:
    assert SPACES.keys() == OPERATOR_VERSIONS.keys() == METHODS.keys()
    assert all(spaces for spaces in SPACES.values())
    assert all(version == f"{method}/1" for method, version in OPERATOR_VERSIONS.items())
    assert all(space in SPACES[method] for method, space in ALIASES.values())
