"""Identity's traps: equal shapes, equal letters, equal members in another order (R 0x00F)."""

import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.adapter_identity import (
    IdentityFixture,
    Layer,
    changed,
    factor_scalars,
    identities,
    lineage,
    refused_fields,
    with_base,
    with_factor,
    with_route,
    with_task,
)
from oracles.routed.identities import identify


@pytest.fixture(scope="module")
def fixture() -> IdentityFixture:
    return IdentityFixture.model_validate_json(load("adapter_identity").fixture_bytes())


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("layer", "J"), 4, "d_in, d_out, r, J"),
        (("factors", 0, "order"), "A_times_B", "factors"),
        (("factors", 1, "parent"), "base-r2", "factors"),
        (("route", "label_role"), "none", "route"),
        (("handoff", "sparse_execution"), "verified", "execution evidence"),
        (("records", 3, "updates"), "gate_only", "record mixture_of_loras"),
        (("records", 2, "inference_label"), "adapter_id", "record loramoe"),
        (("conventions", 2, "role"), "input", "letters, roles and shapes"),
        (("factors", 0, "role"), "output", "contract"),
    ],
)
def test_a_wrong_field_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("adapter_identity")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    reduce(lambda inner, step: inner[step], path, document)[last] = value
    assert rejection(oracle, document) == check


def test_a_change_alters_exactly_what_contains_it(fixture: IdentityFixture) -> None:
    assert changed(fixture, with_route(fixture, k=1)) == ("route",)
    assert changed(fixture, with_factor(fixture, scale=1.0)) == ("factor input", "pool", "route")
    assert changed(fixture, with_task(fixture, data="other")) == ("task 1", "task 2")
    assert changed(fixture, with_base(fixture, tokenizer="other")) == tuple(identities(fixture))
    assert changed(fixture, fixture.model_copy()) == ()


def test_one_record_in_two_domains_has_two_identities() -> None:
    assert identify("oracle_factor", {"a": 1}) != identify("oracle_route", {"a": 1})


def test_a_pool_in_another_order_is_another_pool(fixture: IdentityFixture) -> None:
    swapped = fixture.model_copy(update={"factors": fixture.factors[::-1]})
    assert changed(fixture, swapped) == ("pool", "route")


def test_a_lineage_keeps_its_prefix(fixture: IdentityFixture) -> None:
    base = identify("oracle_base", fixture.base)
    assert lineage(base, fixture.tasks)[:2] == lineage(base, fixture.tasks[:2])


def test_placement_and_measurement_never_enter_an_identity() -> None:
    assert refused_fields(("execution_evidence", "slot", "latency")) == ("slot", "latency")


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8), st.integers(1, 16))
def test_sharing_one_side_saves_j_minus_one_copies_of_it(d_in: int, d_out: int, r: int, J: int) -> None:
    independent, shared_A, shared_B = factor_scalars(Layer(d_in=d_in, d_out=d_out, r=r, J=J))
    assert independent - shared_A == (J - 1) * r * d_in
    assert independent - shared_B == (J - 1) * r * d_out
