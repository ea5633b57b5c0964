"""Compute contracts: seven frozen records, how far they are apart, and substitutions behind equal shapes (C 0x08)."""

from __future__ import annotations

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from oracles.registry import load
from registry.client import EmbeddedRegistry
from registry.errors import RefusedError
from schemas.base import BaseManifest
from schemas.canonical import JsonObject
from schemas.compute import FIELDS, ComputeContractManifest, built_in
from schemas.digests import blob_digest
from schemas.model import validate
from tests.routed.conftest import Api, Run, written
from tests.routed.documents import PARAMETERS, contract, mutations
from tests.support import tiny
from tests.validators.examples import SHAPES, codes, judge, make_adapter, make_base
from validators.compute import compare, judge_contract

ORACLE_NAMES = {"moa_attention": "moa", "mode_staged": "staged", "mode_integrated": "integrated"}
METHODS = tuple(built_in())


def manifest(method: str, /, **changes: Any) -> ComputeContractManifest:
    """A legal contract, or one changed."""
    return validate(ComputeContractManifest, contract(method, **changes))


def on(*contracts: ComputeContractManifest) -> BaseManifest:
    """The example base with these contracts."""
    return make_base().model_copy(update={"compute_contracts": contracts})


def refusals(document: JsonObject) -> set[str]:
    """The codes that refuse a contract document."""
    return {found.code for found in judge_contract(validate(ComputeContractManifest, document))}


def test_the_seven_contracts_are_those_the_oracle_executes() -> None:
    fixture = json.loads(load("family_contracts").fixture_bytes())["contracts"]
    assert {ORACLE_NAMES.get(name, name): found.document() for name, found in built_in().items()} == {
        ORACLE_NAMES.get(name, name): fixture[ORACLE_NAMES.get(name, name)] for name in METHODS
    }
    assert len(METHODS) == 7
    assert len(FIELDS) == 21


def test_all_twenty_one_pairs_differ_in_fourteen_to_twenty_one_fields() -> None:
    distances = {
        (left, right): compare(built_in()[left], built_in()[right]).distance for left, right in combinations(METHODS, 2)
    }
    assert len(distances) == 21
    assert (min(distances.values()), max(distances.values())) == (14, 21)
    nearest = {frozenset(pair) for pair, distance in distances.items() if distance == 14}
    assert nearest == {frozenset({"moa_attention", "switchhead"}), frozenset({"mod_training", "mod_decode"})}


@pytest.mark.parametrize("method", METHODS)
def test_a_contract_is_equal_to_itself_unless_a_field_is_unknown(method: str) -> None:
    own = built_in()[method]
    found = compare(own, own)
    unknown = [name for name in FIELDS if getattr(own, name) == "not_verified"]
    assert (found.distance, [pair.field for pair in found.undetermined]) == (0, unknown)
    assert found.equivalence == ("undetermined" if unknown else "equal")


def test_a_known_difference_decides_even_beside_an_unknown_field() -> None:
    found = compare(built_in()["moa_attention"], built_in()["switchhead"])
    assert found.equivalence == "different"
    assert [pair.field for pair in found.undetermined] == ["padding_router"]
    assert "padding_router" not in {pair.field for pair in found.fields}


SUBSTITUTIONS = {
    "MAP_AXIS_SUBSTITUTED": ("moa_attention", "attention_execution", "H_A_maps"),
    "COMPOSITION_SUBSTITUTED": ("mode_staged", "attention_execution", "dense_valid"),
    "PREDICTOR_USED_AS_GATE": ("mod_decode", "route_weight", "raw_sigmoid"),
    "ADMISSION_ORDER_SUBSTITUTED": ("moe_llava", "admission_policy", "batch_priority_capacity"),
    "PADDING_POPULATION_CHANGED": ("moe_llava", "padding_router", "valid_only"),
    "NOOP_STORED_AS_ABSENT": ("mode_integrated", "kv_row_policy", "sparse_receipts"),
}
"""The six substitutions that leave every shape as it was (C 0x08K), each as one field of a real record."""


@pytest.mark.parametrize("code", SUBSTITUTIONS)
def test_a_substitution_behind_equal_shapes_is_refused_by_its_own_code(registry: EmbeddedRegistry, code: str) -> None:
    method, field, word = SUBSTITUTIONS[code]
    assert registry.add_compute_contract(contract(method), "legal").created
    with pytest.raises(RefusedError) as caught:
        registry.add_compute_contract(contract(method, {field: word}), "substituted")
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == (code, ("contract", field))
    assert (problem.expected, problem.observed) == (getattr(built_in()[method], field), word)
    assert registry.add_compute_contract(contract(method, {field: word}, method="another"), "own").created


def test_any_other_field_or_an_unknown_one_under_a_methods_name_is_refused() -> None:
    for method in METHODS:
        for field in FIELDS:
            found = refusals(contract(method, {field: "another_word"}))
            assert len(found) == 1, (method, field)
    assert refusals(contract("mod_training", {"padding_router": "not_verified"})) == {"CONTRACT_FIELD_SUBSTITUTED"}
    assert refusals(contract("switchhead", {"kv_payload": "shared_no_expert_axis"})) == {"MAP_AXIS_SUBSTITUTED"}
    assert refusals(contract("mode_integrated", {"residual_location": "depth_gated_block_delta"})) == {
        "COMPOSITION_SUBSTITUTED"
    }


@pytest.mark.parametrize("method", METHODS)
def test_a_method_gives_exactly_the_figures_it_owns(method: str) -> None:
    own = PARAMETERS[method]
    assert refusals(contract(method)) == set()
    for name in own:
        rest = {key: value for key, value in own.items() if key != name}
        assert refusals(contract(method, parameters=rest)) == {"PARAMETER_MISSING"}
        assert refusals(contract(method, parameters=own | {name: "not_verified"})) == set()
    foreign = "no_ops" if "no_ops" not in own else "capacity"
    assert refusals(contract(method, parameters=own | {foreign: 1})) == {"PARAMETER_NOT_OWNED"}


@pytest.mark.parametrize("k", [0, 4])
def test_no_more_experts_are_selected_than_there_are(k: int) -> None:
    assert refusals(contract("moa_attention", parameters={"experts": 3, "k": k})) == {"PARAMETER_IMPOSSIBLE"}


def test_one_changed_field_is_refused_or_another_identity_and_never_passes_silently() -> None:
    outcomes: Counter[str] = Counter()
    for method in METHODS:
        document = contract(method, route_modules=["a.router", "b.router"])
        legal = validate(ComputeContractManifest, document)
        for path, mutated in mutations(document):
            try:
                found = validate(ComputeContractManifest, mutated)
            except RefusedError:
                outcomes["refused by type"] += 1
                continue
            if list(judge_contract(found)):
                outcomes["refused by rule"] += 1
            else:
                assert found.digest != legal.digest, path
                outcomes["another identity"] += 1
    print(dict(outcomes))
    assert set(outcomes) == {"refused by type", "refused by rule", "another identity"}


def test_contracts_and_figures_are_part_of_a_bases_identity(registry: EmbeddedRegistry, tiny_base: Path) -> None:
    document = contract("moa_attention")
    registry.add_compute_contract(document, "moa")
    registry.add_compute_contract(contract("moa_attention", parameters={"experts": 4, "k": 2}), "moa")
    plain = registry.show("tiny").digest
    routed = [registry.add_base(tiny_base, f"routed{v}", store=True, contracts=[f"moa@{v}"]).digest for v in (1, 2)]
    assert len({plain, *routed}) == 3
    nodes = registry.lineage(routed[0], "up").nodes
    assert [node.kind for node in nodes] == ["base", "compute_contract"]
    assert registry.lineage("moa@1", "down").nodes[1].digest == routed[0]


MOA, SWITCHHEAD = manifest("moa_attention"), manifest("switchhead")


@pytest.mark.parametrize(
    ("contracts", "factor", "refused"),
    [
        ((), {"expert": 1}, True),
        ((MOA,), {"expert": 1}, False),
        ((MOA,), {"expert": 1, "map_head": 0}, True),
        ((MOA,), {"route_side": "source"}, True),
        ((SWITCHHEAD,), {"expert": 1, "map_head": 0, "route_side": "source"}, False),
        ((manifest("mod_decode"),), {"expert": 1}, True),
        ((manifest("mod_decode", method="our_own"),), {"expert": 1, "map_head": 0}, False),
    ],
)
def test_a_site_names_only_parts_that_the_bases_routes_tell_apart(
    contracts: tuple[ComputeContractManifest, ...], factor: dict[str, Any], refused: bool
) -> None:
    base = on(*contracts) if contracts else make_base()
    assert ("SITE_NOT_IN_BASE" in codes(judge(base, make_adapter(base, factor=factor)))) == refused


def test_members_of_a_base_with_other_routes_are_refused_although_every_weight_agrees() -> None:
    moa, switchhead = on(MOA), on(SWITCHHEAD)
    decision = judge(moa, make_adapter(moa, "one"), make_adapter(switchhead, "two"), others=(switchhead,))
    assert codes(decision) == ["BASE_CONTRACT_DIFFERS", "HARD_ROUTES_NOT_PROMISED"]
    other = on(manifest("moa_attention", parameters={"experts": 4, "k": 2}))
    assert "BASE_CONTRACT_DIFFERS" in codes(judge(moa, make_adapter(other), others=(other,)))


@pytest.mark.parametrize("lift", ["none", blob_digest(b"lift")])
def test_an_adapter_of_the_dense_parent_needs_a_recorded_lift(lift: str) -> None:
    dense = make_base()
    lineage: JsonObject = {
        "stage": "three",
        "parent": dense.digest,
        "clone_rule": "copy_every_ffn",
        "trainable": ["experts", "router"],
        "lift": lift,
    }
    sparse = on(manifest("moe_llava", lineage=lineage))
    found = codes(judge(sparse, make_adapter(dense), others=(dense,)))
    assert ("CLONED_EXPERTS_NOT_LIFTED" in found) == (lift == "none")
    assert ("BASE_CONTRACT_DIFFERS" in found) == (lift != "none")


def test_an_adapter_on_the_router_is_conditional_since_it_changes_the_routes() -> None:
    module = next(iter(SHAPES))
    base = on(manifest("moa_attention", route_modules=[module]))
    decision = judge(base, make_adapter(base))
    assert codes(decision) == ["HARD_ROUTES_NOT_PROMISED", "ROUTE_PROGRAM_TOUCHED"]
    assert decision.outcome == "conditional"
    assert decision.predicates.R == "conditional"


def test_the_command_tells_distance_and_fields(run: Run, tmp_path: Path) -> None:
    found = json.loads(run("contract", "diff", "moa_attention", "switchhead", "-o", "json").stdout)
    assert found["distance"] == 14 == len(found["fields"])
    assert found["fields"][0] == {"field": "routed_object", "left": "qo_pair", "right": "srcV_dstO"}
    assert "distance 14 of 21" in run("contract", "diff", "moa_attention", "switchhead").stdout
    document = {"contract": "moa_attention", "parameters": {"experts": 8, "k": 2}}
    run("add", "compute-contract", written(tmp_path / "moa.json", document), "--name", "ours")
    same = json.loads(run("contract", "diff", "ours", "moa_attention", "-o", "json").stdout)
    assert (same["distance"], same["equivalence"]) == (0, "undetermined")
    assert "compute_contract" in run("ls", "compute-contracts").stdout
    base = tiny.write_base(tmp_path / "base")
    run("add", "base", base, "--name", "routed", "--contract", "ours")
    assert "contract: compute_contract ours@1" in run("lineage", "routed").stdout
    run("contract", "diff", "ours", "nobody", code=4)
    run("add", "compute-contract", written(tmp_path / "no.json", {"contract": "nobody"}), "--name", "no", code=3)


def test_requests_register_and_compare_contracts(api: Api) -> None:
    body = {"name": "moa", "document": contract("moa_attention")}
    assert [api.post("/v1/compute-contracts", json=body).status_code for _ in range(2)] == [201, 200]
    refused = {"name": "no", "document": contract("mod_decode", {"route_weight": "raw_sigmoid"})}
    answer = api.post("/v1/compute-contracts", json=refused)
    assert (answer.status_code, answer.json()["code"]) == (422, "PREDICTOR_USED_AS_GATE")
    found = api.get("/v1/compute-contracts/diff?left=moa&right=switchhead").json()
    assert (found["equivalence"], found["distance"], len(found["fields"])) == ("different", 14, 14)
