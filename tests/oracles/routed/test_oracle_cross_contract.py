"""The assembled system's traps: every part right, the whole from different lanes, leases or generations (R 0x09)."""

import json
from functools import reduce

import pytest

from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.cross_contract import (
    CrossFixture,
    Lane,
    components,
    may_reuse,
    model_identity,
    publication_identities,
    static_merge_legal,
    transaction,
    violated,
)
from oracles.routed.cross_contract_replay import UPSTREAM, admits, contract_bytes, replayed, value_of
from schemas.digests import blob_digest


@pytest.fixture(scope="module")
def fixture() -> CrossFixture:
    return CrossFixture.model_validate_json(load("cross_contract").fixture_bytes())


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("lanes", 0, "topology"), "independent", "lanes"),
        (("publications", 2, "versions", 1), "adapter-1-r4", "artifact versions"),
        (("publications", 2, "generation"), 41, "plan generations"),
        (("request", "plan_generation"), 42, "request against lease"),
        (("request", "pointer_generations", 1), 21, "pointer generations"),
        (("counterfactuals", 6, "check"), "a republished slot_generation", "kv_after_route_change is rejected"),
        (("counterfactuals", 0, "oracle"), "nobody", "dynamic_as_static_merge is rejected"),
    ],
)
def test_a_wrong_binding_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("cross_contract")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    reduce(lambda inner, step: inner[step], path, document)[last] = value
    assert rejection(oracle, document) == check


def test_an_upstream_file_that_changed_is_not_admitted() -> None:
    _, held = replayed("adapter_identity")
    assert admits(held, held)
    for part in held._fields:
        assert not admits(held, held._replace(**{part: blob_digest(b"another file")}))


def test_what_an_oracle_does_not_prove_is_part_of_its_contract() -> None:
    assert len({contract_bytes(oracle) for oracle in UPSTREAM.values()}) == 8
    for oracle in UPSTREAM.values():
        assert oracle.does_not_prove[0].encode() in contract_bytes(oracle)


def test_an_unknown_check_has_no_value() -> None:
    assert value_of("composition_merge", "no such check") is None
    assert value_of("no such oracle", "D") is None


def test_a_live_router_forbids_one_static_artifact(fixture: CrossFixture) -> None:
    fusion = fixture.lanes[1]
    assert static_merge_legal(fusion)
    assert not static_merge_legal(fusion.model_copy(update={"route": "selected_top2"}))


def test_a_lane_with_two_foreign_fields_names_both_predicates(fixture: CrossFixture) -> None:
    mixed: Lane = fixture.lanes[3].model_copy(update={"route": "none", "topology": "independent"})
    assert violated(mixed) == ("P_F", "P_R")


def test_a_new_lease_keeps_the_function_and_changes_the_execution(fixture: CrossFixture) -> None:
    request = fixture.request
    later = request.model_copy(update={"catalog_generation": 32})
    assert model_identity(later) == model_identity(request)
    assert transaction(components(later)) != transaction(components(request))


def test_a_rollback_is_another_publication_even_of_the_same_generation_number(fixture: CrossFixture) -> None:
    first, second, third = fixture.publications
    relabelled = third.model_copy(update={"generation": first.generation})
    found = publication_identities((first, second, relabelled))
    assert found[2] != found[0]
    assert not may_reuse(first.generation, third.generation, proven=False)
