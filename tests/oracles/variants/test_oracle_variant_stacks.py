"""Stack traps: accepted flags and equal shapes prove no composition (V 0x09L)."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.variant_stacks_rules import (
    COORDINATES,
    FACTS,
    REFUSING,
    STATE,
    Axes,
    artifact_union,
    mechanisms,
    outcome,
    vector,
)

PLAIN: dict[str, Any] = {
    "base": "dense",
    "rank": "fixed",
    "scale": "alpha_over_r",
    "initializer": "zero_b",
    "coordinates": "additive",
    "optimizers": ("adamw",),
    "artifact": "native",
    "adapters": "one",
}


def axes(**changes: object) -> Axes:
    return Axes.model_validate({**PLAIN, **changes})


def word(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from(get_args(Axes.model_fields[name].annotation))


ANY = st.fixed_dictionaries(
    {name: word(name) for name in PLAIN if name != "optimizers"}
    | {"optimizers": st.sampled_from([("adamw",), ("lora_plus",), ("lora_fa",), ("lora_plus", "lora_fa")])}
).map(lambda changes: axes(**changes))


def test_plain_lora_changes_nothing_and_is_admitted() -> None:
    assert (mechanisms(axes()), artifact_union(axes())) == ((), ())
    assert outcome(vector(axes())) == "admitted"


@pytest.mark.parametrize(
    ("stack", "axis", "value"),
    [
        (0, "scale", "alpha_over_r"),
        (1, "coordinates", "additive"),
        (2, "optimizers", ["adamw"]),
        (3, "artifact", "native"),
        (10, "rank", "fixed"),
        (14, "adapters", "one"),
    ],
)
def test_another_axis_under_the_same_name_fails_the_check_of_that_stack(stack: int, axis: str, value: object) -> None:
    oracle = load("variant_stacks")
    document = json.loads(oracle.fixture_bytes())
    document["stacks"][stack]["axes"][axis] = value
    assert rejection(oracle, document) == f"mechanisms of {document['stacks'][stack]['name']}"


@given(ANY)
def test_a_refusal_is_never_hidden_by_a_condition(stack: Axes) -> None:
    found = vector(stack)
    if any(status in REFUSING for status in found):
        assert outcome(found) == "refused"
    else:
        assert (outcome(found) == "admitted") == (set(found) == {"pass"})


@given(ANY)
def test_a_union_holds_every_part_and_only_adds_interactions(stack: Axes) -> None:
    union = artifact_union(stack)
    parts = tuple(field for name in mechanisms(stack) for field in STATE.get(name, ()))
    assert union[: len(parts)] == parts


@given(ANY)
def test_a_stack_without_an_objecting_fact_passes_every_coordinate(stack: Axes) -> None:
    if not any(fact.applies(stack) for fact in FACTS):
        assert vector(stack) == ("pass",) * len(COORDINATES)


def test_a_conversion_or_a_single_adapter_lifts_the_shared_base_conflict() -> None:
    several = axes(initializer="pissa", adapters="several")
    assert outcome(vector(several)) == "refused"
    assert outcome(vector(several.model_copy(update={"artifact": "converted"}))) == "admitted"
    assert outcome(vector(several.model_copy(update={"adapters": "one"}))) == "admitted"
