"""Routers: extents, causality, pooling, gates, selection, ownership, evidence, each breach by its own code (R 0x07)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from registry.client import EmbeddedRegistry
from registry.errors import RefusedError
from schemas.adapter import AdapterManifest, sorted_factors
from schemas.canonical import JsonObject, JsonValue
from schemas.digests import blob_digest
from schemas.model import validate
from schemas.router import Extents, RouterManifest
from tests.routed.conftest import Api, Run, written
from tests.routed.documents import REQUEST, TOP_K, mutations, router, tensor
from tests.support import tiny
from tests.validators.examples import ARCHITECTURE, SHAPES, make_adapter, make_base, make_factor
from tests.validators.examples import tensor as content
from validators.codes import routed
from validators.routes.families import ROUTES
from validators.routes.router import judge_router

BASE = make_base()
ADAPTERS = {adapter.digest: adapter for adapter in (make_adapter(BASE, label) for label in ("one", "two", "three"))}
POOL: list[JsonValue] = [{"adapter": digest} for digest in ADAPTERS]
MODULE = next(iter(SHAPES))


def experts(*ranks: int, shared: bool = True, base: Any = BASE) -> AdapterManifest:
    """An adapter of several experts on one module, with one A or one of its own for each."""
    factors = [
        make_factor(
            base.digest,
            MODULE,
            SHAPES[MODULE],
            label=f"expert {number}",
            rank=rank,
            expert=number,
            a=content("shared" if shared else f"own {number}", rank, SHAPES[MODULE][1]),
        )
        for number, rank in enumerate(ranks)
    ]
    return AdapterManifest(base=base.digest, factors=sorted_factors(factors), family="hydralora")


def of(adapter: AdapterManifest, count: int) -> list[JsonValue]:
    """A pool of the first experts of one adapter."""
    return [{"adapter": adapter.digest, "expert": number} for number in range(count)]


def codes(document: JsonObject, *more: AdapterManifest) -> set[str]:
    """What is found in a router document over the example adapters and more."""
    known = ADAPTERS | {adapter.digest: adapter for adapter in more}
    return {found.code for found in judge_router(validate(RouterManifest, document), known)}


def our(**changes: Any) -> JsonObject:
    """The legal example, or one changed."""
    return router(BASE.digest, POOL, **changes)


def test_logical_gate_entries_are_those_of_the_document() -> None:
    shared, layered = {"layers": 1, "matrices": 1}, {"layers": 2, "matrices": 1}
    one = {name: Extents(positions="one", **extents) for name, extents in (("shared", shared), ("layered", layered))}
    every = [Extents(positions="every", layers=2, matrices=matrices) for matrices in (1, 2)]
    assert one["shared"].entries(3) == 3
    assert one["shared"].entries(3, requests=2) == 6
    assert one["layered"].entries(3, requests=2) == 12
    assert [item.entries(3, requests=2, length=3) for item in every] == [36, 72]


@pytest.mark.parametrize("changes", [{}, TOP_K, REQUEST, {**TOP_K, **REQUEST}])
def test_a_whole_router_is_found_without_fault(changes: JsonObject) -> None:
    assert codes(our(**changes)) == set()


GATES: JsonObject = {"activation": "softmax", "normalization": "pool_row", "gradient": "full", "dtype": "float32"}
TWO_LAYERS: JsonObject = {"positions": "every", "layers": 2, "matrices": 1}
BREACHES: dict[str, JsonObject] = {
    "GATE_ENTRIES_DIFFER": {"extents": TWO_LAYERS},
    "LIFETIME_CALLED_PLACEMENT": {**REQUEST, "extents": {"positions": "every", "layers": 1, "matrices": 1}},
    "FEATURE_FROM_THE_FUTURE": {"feature_source": "future_tokens"},
    "FEATURE_CIRCULAR": {"feature_source": "same_layer_output"},
    "FEATURE_READS_TEST_LABELS": {"feature_source": "test_labels"},
    "TRAINING_LABEL_AS_INPUT": {"feature_source": "training_label"},
    "FEATURE_OF_ANOTHER_LIFETIME": {"feature_source": "prompt_hidden"},
    "POOLING_READS_PADDING": {**REQUEST, "mask": "ignored"},
    "MASK_NOT_VERIFIED": {**REQUEST, "mask": "not_verified"},
    "POOLING_UNDECLARED": {**REQUEST, "pooling": "none"},
    "PERSISTENCE_CONTRADICTS_LIFETIME": {**REQUEST, "persistence": "recomputed"},
    "GATES_FLATTENED": {**TOP_K, "gates": {**GATES, "normalization": "flattened_selected"}},
    "GATES_CONTRADICT_SELECTION": {"gates": {**GATES, "normalization": "selected_row"}},
    "SELECTION_INCOMPLETE": {**TOP_K, "selection": {"rule": "top_k", "k": 2}},
    "DEGREE_TOO_LARGE": {**TOP_K, "selection": {"rule": "top_k", "k": 4, "ties": "candidate_order"}},
    "RANDOMNESS_NOT_KEPT": {**TOP_K, "selection": {"rule": "top_k", "k": 2, "ties": "random_stored"}},
    "SOFTMAX_CALLED_SPARSE": {"execution": "sparse"},
    "SPARSE_WITHOUT_TRACE": {**TOP_K, "execution": "sparse"},
    "ROUTE_FAMILY_CONTRADICTED": {**TOP_K, "family": "loramoe"},
}


@pytest.mark.parametrize("code", BREACHES)
def test_one_breach_is_named_and_nothing_else_is_blamed(code: str) -> None:
    assert codes(our(**BREACHES[code])) == {code}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"label_role": "input"}, "TRAINING_LABEL_AS_INPUT"),
        ({"gates": {**GATES, "normalization": "none"}}, "GATES_CONTRADICT_SELECTION"),
        ({"selection": {"rule": "all", "k": 2}}, "SELECTION_INCOMPLETE"),
        ({"selection": {"rule": "threshold", "threshold": 0.5}}, "SELECTION_INCOMPLETE"),
        ({"pooling": "mean"}, "POOLING_UNDECLARED"),
        ({**REQUEST, "mask": "none"}, "POOLING_READS_PADDING"),
        ({"family": "sira", **TOP_K}, "ROUTE_FAMILY_CONTRADICTED"),
        ({"gates": {**GATES, "activation": "uniform"}}, "GATE_ENTRIES_DIFFER"),
    ],
)
def test_further_ways_to_break_a_rule(changes: JsonObject, code: str) -> None:
    assert codes(our(**changes)) == {code}


def test_a_sparse_claim_stands_with_its_trace_and_a_capacity_with_its_family() -> None:
    trace = {**TOP_K, "execution": "sparse", "trace": blob_digest(b"trace")}
    assert codes(our(**trace)) == set()
    capacity: JsonObject = {"limit": 4, "overflow": "base_path", "service": "row_order"}
    assert codes(our(**TOP_K, family="sira", capacity=capacity)) == set()
    assert codes(our(**TOP_K, family="sira", capacity={**capacity, "overflow": "drop"})) == {
        "ROUTE_FAMILY_CONTRADICTED"
    }
    assert codes(our(selection={"rule": "threshold", "threshold": 0.5, "comparator": "strict_greater"})) == set()
    assert codes(our(gates={**GATES, "activation": "uniform"}, tensors={})) == set()
    assert len(ROUTES) == 12


def test_a_zero_branch_has_a_row_of_its_own() -> None:
    four: JsonObject = {"gate.weight": {"role": "gate", "value": tensor("gate", 4, 6)}}
    one_each: JsonObject = {f"rater.{i}": {"role": "gate", "value": tensor(f"u{i}", 8)} for i in range(4)}
    for tensors in (four, one_each):
        assert codes(our(no_op_ids=[0], tensors=tensors)) == set()
    assert codes(our(no_op_ids=[0])) == {"GATE_ENTRIES_DIFFER"}


def test_a_pool_holds_adapters_of_one_base_and_experts_they_have() -> None:
    other = make_base(architecture=ARCHITECTURE.model_copy(update={"vocab_size": 7}))
    stranger = make_adapter(other, "stranger")
    assert codes(router(BASE.digest, [*POOL[:2], {"adapter": stranger.digest}]), stranger) == {"POOL_BASE_DIFFERS"}
    hydra = experts(2, 2)
    assert codes(router(BASE.digest, of(hydra, 2)), hydra) == set()
    assert codes(router(BASE.digest, of(hydra, 3)), hydra) == {"POOL_EXPERT_MISSING"}
    assert codes(router(BASE.digest, [{"adapter": hydra.digest}]), hydra) == {"POOL_EXPERT_MISSING"}


def test_a_shared_a_is_one_object_and_not_one_shape() -> None:
    shared, clones = experts(2, 2, 2), experts(2, 2, 2, shared=False)
    assert codes(router(BASE.digest, of(shared, 3), topology="shared_a", family="hydralora"), shared) == set()
    refused = router(BASE.digest, of(clones, 3), topology="shared_a", family="hydralora")
    assert codes(refused, clones) == {"SHARED_A_UNEQUAL"}


def test_a_pool_of_factors_is_of_rank_one() -> None:
    ones, twos = experts(1, 1, shared=False), experts(1, 2, shared=False)
    assert codes(router(BASE.digest, of(ones, 2), topology="rank_one"), ones) == set()
    assert codes(router(BASE.digest, of(twos, 2), topology="rank_one"), twos) == {"FACTORS_NOT_RANK_ONE"}


@pytest.mark.parametrize(
    "changes",
    [
        {"no_op_ids": [9]},
        {"no_op_ids": [1, 0]},
        {"pool": [POOL[0], POOL[0]]},
        {"slot": 3},
        {"kernel": "bgmv"},
        {"latency": 1.5},
        {"extents": {"positions": "every", "layers": 0, "matrices": 1}},
    ],
)
def test_what_no_router_can_say_is_refused_by_type(changes: JsonObject) -> None:
    with pytest.raises(RefusedError) as caught:
        validate(RouterManifest, our(**changes))
    assert caught.value.code == "MANIFEST_INVALID"


@pytest.mark.parametrize("changes", [TOP_K, REQUEST])
def test_one_changed_field_is_refused_or_another_identity(changes: JsonObject) -> None:
    document = our(**changes)
    legal, outcomes = validate(RouterManifest, document), Counter[str]()
    for path, mutated in mutations(document):
        try:
            found = validate(RouterManifest, mutated)
        except RefusedError:
            outcomes["refused by type"] += 1
            continue
        if {entry.adapter for entry in found.pool} - ADAPTERS.keys():
            outcomes["refused as unknown adapter"] += 1
        elif list(judge_router(found, ADAPTERS)):
            outcomes["refused by rule"] += 1
        else:
            assert found.digest != legal.digest, path
            outcomes["another identity"] += 1
    print(dict(outcomes))
    assert {"refused by type", "refused by rule", "another identity"} <= set(outcomes)


def test_every_router_code_is_reached_here_or_by_releases_and_requests() -> None:
    elsewhere = {
        "LANE_CONTRADICTED", "ROUTER_FOREIGN", "HISTORY_FOREIGN", "ROUTE_OUTSIDE_POOL", "ROUTE_DEGREE_DIFFERS",
        "ROUTE_NOT_NORMALIZED", "ROUTE_OF_ANOTHER_ROUTER", "KV_AFTER_ROUTE_CHANGE", "EXECUTION_OF_ANOTHER_GENERATION",
    }  # fmt: skip
    pool = {"POOL_BASE_DIFFERS", "POOL_EXPERT_MISSING", "FACTORS_NOT_RANK_ONE"}
    assert {record.code for record in routed.RECORDS} == {*BREACHES, *pool, *elsewhere}


def gates(path: Path, **more: Any) -> Path:
    """A router file: three gate rows for each of the four adapted modules."""
    draw = np.random.default_rng(5)
    rows = {f"{module}.gate": draw.normal(size=(3, tiny.HIDDEN)).astype(np.float32) for module in tiny.MODULES}
    save_file({**rows, **more}, path)
    return path


def per_module(**changes: Any) -> JsonObject:
    """A router over `one`, `two`, `three` with a gate for each module; names instead of digests."""
    roles: JsonObject = dict.fromkeys((f"{module}.gate" for module in tiny.MODULES), "gate")
    extents: JsonObject = {"positions": "every", "layers": 2, "matrices": 2}
    return router("tiny", ["one", "two", "three"], tensors=roles, extents=extents, **changes)


def test_a_router_is_stored_with_its_tensors_and_its_lineage(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    file = gates(tmp_path / "router.safetensors")
    added = registry.add_router(per_module(), "route", file)
    assert (added.kind, added.ref, added.created) == ("router", "route@1", True)
    shown = registry.show("route")
    assert [entry.path for entry in shown.files] == ["router.safetensors"]
    up = {(link.role, link.parent) for link in registry.lineage("route", "up").links if link.child == added.digest}
    assert up == {("base", registry.show("tiny").digest)} | {
        ("candidate", registry.show(name).digest) for name in ("one", "two", "three")
    }
    assert registry.lineage("one", "down").nodes[1].digest == added.digest
    assert not registry.add_router(per_module(), "route", file).created
    retrained = gates(tmp_path / "retrained.safetensors", **{f"{tiny.MODULES[0]}.gate": np.eye(3, 8, dtype=np.float32)})
    assert registry.add_router(per_module(), "route", retrained).version == 2
    verified = registry.verify(deep=True)
    assert verified.clean
    # four factors' a and b in each of three adapters; gates of two versions, three of which are the same
    assert verified.tensors == 3 * 8 + 4 + 1


def test_a_tensor_is_missing_foreign_or_not_a_number(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    eye = np.eye(3, 8, dtype=np.float32)
    stranger = gates(tmp_path / "stranger.safetensors", other=eye)
    broken = gates(tmp_path / "broken.safetensors", **{f"{tiny.MODULES[0]}.gate": np.full((3, 8), np.inf, np.float32)})
    lacking = per_module()
    assert isinstance(lacking["tensors"], dict)
    lacking["tensors"]["nobody"] = "gate"
    cases = [
        (per_module(), stranger, "ROUTER_TENSOR_UNNAMED"),
        (per_module(), broken, "NON_FINITE"),
        (lacking, gates(tmp_path / "ok.safetensors"), "ROUTER_TENSOR_MISSING"),
        (per_module(), tmp_path / "absent.safetensors", "FILE_MISSING"),
        (per_module(execution="sparse"), tmp_path / "ok.safetensors", "SOFTMAX_CALLED_SPARSE"),
    ]
    for document, file, code in cases:
        with pytest.raises(RefusedError) as caught:
            registry.add_router(document, "route", file)
        assert caught.value.code == code


def test_a_router_is_registered_by_command_and_by_request(run: Run, api: Api, tmp_path: Path) -> None:
    run("add", "base", tiny.write_base(tmp_path / "base"), "--name", "tiny")
    for seed, name in enumerate(("one", "two", "three"), 1):
        run("add", "adapter", tiny.write_adapter(tmp_path / f"cli-{name}", seed), "--base", "tiny", "--name", name)
    file, document = gates(tmp_path / "router.safetensors"), written(tmp_path / "router.json", per_module())
    added = run("add", "router", document, "--tensors", file, "--name", "route").stdout
    assert added.startswith("added: router route@1")
    assert "router" in run("ls", "routers").stdout
    body = {"name": "route", "document": document.read_text(encoding="utf-8")}
    sent = {"tensors": ("gates.safetensors", file.read_bytes())}
    assert [api.post("/v1/routers", data=body, files=sent).status_code for _ in range(2)] == [201, 200]
    wrong = written(tmp_path / "wrong.json", per_module(feature_source="future_tokens"))
    run("add", "router", wrong, "--tensors", file, "--name", "wrong", code=3)
    refused = api.post("/v1/routers", data=body | {"document": wrong.read_text(encoding="utf-8")}, files=sent)
    assert (refused.status_code, refused.json()["code"]) == (422, "FEATURE_FROM_THE_FUTURE")
