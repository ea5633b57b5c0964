"""Lanes end to end: real tensors in their producers' layouts, admitted or refused, published, rolled back (R 0x09)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from registry.client import EmbeddedRegistry
from registry.errors import RefusedError, UsageProblemError
from registry.service.results import Admitted
from schemas.canonical import JsonObject
from schemas.digests import blob_digest
from schemas.model import Record, validate
from schemas.release import Product, ResolvedRelease, ResolvedRouteManifest
from tests.routed.documents import TOP_K, route, router, state, transaction
from tests.routed.test_routed_histories import named
from tests.routed.test_routed_routers import gates, per_module
from tests.support import tiny

Array = np.ndarray[Any, np.dtype[np.float32]]
POOL: list[Any] = ["one", "two", "three"]
DIGEST = blob_digest(b"something")


def hydra(folder: Path, experts: int = 3, *, shared: bool = True) -> Path:
    """HydraLoRA's directory: one lora_A, several lora_B and a dense router on every module (afb693bc).

    With a lora_A for each expert it is LoRAMoE's (11772888).
    """
    draw, tensors = np.random.default_rng(3), dict[str, Array]()
    for module in tiny.MODULES:
        key = f"base_model.model.{module}"
        tensors[f"{key}.lora_route.weight"] = draw.normal(size=(experts, tiny.HIDDEN)).astype(np.float32)
        for number in [""] if shared else range(experts):
            tensors[f"{key}.lora_A{number}.weight"] = draw.normal(size=(2, tiny.HIDDEN)).astype(np.float32)
        for expert in range(experts):
            tensors[f"{key}.lora_B{expert}.weight"] = draw.normal(size=(tiny.HIDDEN, 2)).astype(np.float32)
    return tiny.write_adapter(folder, tensors=tensors, lora_nums=experts)


def hydra_router() -> JsonObject:
    """Its router: the lora_route tensors of the same file, dense over the experts of one adapter."""
    routes = {f"base_model.model.{module}.lora_route.weight": "gate" for module in tiny.MODULES}
    pool: list[Any] = [{"adapter": "hydra", "expert": expert} for expert in range(3)]
    extents = {"positions": "every", "layers": 2, "matrices": 2}
    return router("tiny", pool, tensors=routes, extents=extents, topology="shared_a", family="hydralora")


def raters(path: Path) -> Path:
    """AM-LoRA's raters: one vector for the zero branch and each task, on each module."""
    draw = np.random.default_rng(9)
    save_file({f"{m}.rater": draw.normal(size=(4, tiny.HIDDEN)).astype(np.float32) for m in tiny.MODULES}, path)
    return path


def rater_router() -> JsonObject:
    """A softmax over the branches' own outputs, the zero branch first."""
    return router(
        "tiny",
        POOL,
        family="amlora",
        tensors={f"{module}.rater": "gate" for module in tiny.MODULES},
        extents={"positions": "every", "layers": 2, "matrices": 2},
        no_op_ids=[0],
        feature_source="branch_output",
    )


def admit(registry: EmbeddedRegistry, lane: str, **parts: str) -> Admitted:
    """Ask to release a lane's parts under the lane's name."""
    return registry.admit(json.dumps({"name": lane.replace("_", "-"), "lane": lane, **parts}).encode())


def found(answer: Admitted) -> set[str]:
    """The codes of an answer."""
    return {finding.code for finding in answer.decision.findings}


def served(registry: EmbeddedRegistry, answer: Admitted, part: str = "one") -> None:
    """A candidate with this adapter is published beside a plain adapter's channel history, and rolled back."""
    assert answer.outcome == "admitted", answer.decision.findings
    assert answer.candidate is not None
    first = registry.publish("bot", ["one"], expect=0)
    second = registry.publish("bot", [answer.candidate], expect=1)
    third = registry.rollback("bot", expect=2)
    fourth = registry.rollback("bot", to=2, expect=3)
    assert (third.artifacts, fourth.artifacts) == (first.artifacts, second.artifacts)
    assert len({item.kv_identity for item in (first, second, third, fourth)}) == 4
    live = registry.lineage(part, "down", live=True)
    assert "candidate" in {node.kind for node in live.nodes}
    assert registry.verify(deep=True).clean


def test_a_hydralora_is_read_routed_admitted_and_published(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    directory = hydra(tmp_path / "hydra")
    registry.add_adapter(directory, "tiny", "hydra")
    registry.add_router(hydra_router(), "hydra-route", directory / "adapter_model.safetensors")
    answer = admit(registry, "shared_a_dense", router="hydra-route")
    assert answer.outcome == "admitted", answer.decision.findings
    assert registry.publish("hydra", ["shared-a-dense"]).generation == 1
    assert found(admit(registry, "shared_a_selected", router="hydra-route")) == {"LANE_CONTRADICTED"}
    refused = admit(registry, "shared_a_dense", router="hydra-route", package="static")
    (finding,) = refused.decision.refusals
    assert finding.code == "DYNAMIC_PACKAGED_STATIC"
    assert "additivity residual" in finding.observed
    assert float(finding.observed.split()[3]) > 0.1


def test_an_xlora_style_router_is_published_and_never_as_one_matrix(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    file = gates(tmp_path / "xlora.safetensors")
    registry.add_router(per_module(family="xlora", feature_source="prior_pass"), "xlora", file)
    refused = admit(registry, "posthoc_routed", router="xlora", package="static")
    assert found(refused) == {"DYNAMIC_PACKAGED_STATIC"}
    assert refused.candidate is None
    served(registry, admit(registry, "posthoc_routed", router="xlora"))
    assert registry.cache_identity("bot").static["router_revision"] == registry.show("xlora").digest
    assert registry.cache_identity("bot", 1).static["router_revision"] == "none"
    assert registry.cache_identity("bot").request_fields == (
        "token_prefix", "side_input", "isolation_namespace", "route_trace",
    )  # fmt: skip


def test_an_olora_history_is_published_as_ordered_parents(registry: EmbeddedRegistry) -> None:
    for count in (1, 2, 3):
        registry.add_continual_state(named(*POOL[:count]), f"s{count}")
    answer = admit(registry, "olora_ordered", state="s3")
    served(registry, answer)
    shown = registry.show(str(answer.candidate)).manifest
    assert shown["adapters"] == [registry.show(name).digest for name in POOL]
    assert found(admit(registry, "olora_ordered", state="s3", package="static")) == {"LANE_NOT_SUPPORTED"}


def test_an_amlora_mixture_needs_history_and_selector_together(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    registry.add_router(rater_router(), "raters", raters(tmp_path / "raters.safetensors"))
    for count in (1, 2):
        registry.add_continual_state(named(*POOL[:count]), f"s{count}")
    mixed = named(*POOL, lane="amlora_selector", concatenation="separate_branches", selector="raters")
    registry.add_continual_state(mixed, "s3")
    served(registry, admit(registry, "amlora_selector", router="raters", state="s3"))
    assert found(admit(registry, "amlora_selector", router="raters")) == {"HISTORY_MISSING"}
    assert found(admit(registry, "amlora_selector", state="s3")) == {"ROUTER_MISSING"}
    static = admit(registry, "amlora_selector", router="raters", state="s3", package="static")
    assert found(static) == {"DYNAMIC_PACKAGED_STATIC"}
    with pytest.raises(RefusedError) as caught:
        registry.add_router(rater_router() | {"execution": "sparse"}, "no", tmp_path / "raters.safetensors")
    assert caught.value.code == "SOFTMAX_CALLED_SPARSE"


LANES: dict[str, tuple[JsonObject, bool]] = {
    "joint_routed": ({"family": "loramoe"}, True),
    "posthoc_routed": ({"family": "meteora", **TOP_K}, True),
    "pregated_fused": ({"family": "lora_switch", **TOP_K, "feature_source": "prior_pass"}, False),
}


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_admits_its_own_routers_and_no_others(registry: EmbeddedRegistry, tmp_path: Path, lane: str) -> None:
    changes, admitted = LANES[lane]
    registry.add_router(per_module(**changes), "route", gates(tmp_path / "gates.safetensors"))
    assert found(admit(registry, lane, router="route")) == (set() if admitted else {"LANE_CONTRADICTED"})
    assert "LANE_CONTRADICTED" in found(admit(registry, "staged_routed", router="route"))
    assert found(admit(registry, "static_fusion", router="route")) == {"LANE_NOT_COMPOSABLE"}
    assert found(admit(registry, "olora_ordered", router="route")) == {"ROUTER_FOREIGN", "HISTORY_MISSING"}
    registry.add_continual_state(named("one"), "s1")
    assert "HISTORY_FOREIGN" in found(admit(registry, lane, router="route", state="s1"))


def test_a_request_is_bound_to_route_cache_and_generation(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    two = [registry.show(name).digest for name in ("one", "two")]
    registry.add_router(per_module(family="meteora", **TOP_K), "route", gates(tmp_path / "gates.safetensors"))
    answer = admit(registry, "posthoc_routed", router="route")
    registry.publish("bot", [str(answer.candidate)])
    registry.add_resolved_route(route("route", two), "chosen")
    registry.add_resolved_route(route("route", two[::-1]), "other")
    eye = np.eye(3, tiny.HIDDEN, dtype=np.float32)
    retrained = gates(tmp_path / "retrained.safetensors", **{f"{tiny.MODULES[0]}.gate": eye})
    registry.add_router(per_module(family="meteora", **TOP_K), "another", retrained)
    registry.add_resolved_route(route("another", two), "foreign")
    kv = registry.cache_identity("bot").kv_identity
    whole = transaction(str(answer.candidate), "chosen", generation=1, kv_identity=kv)
    assert registry.add_transaction(whole, "request").kind == "transaction"
    registry.publish("bot", ["one"])
    breaches: list[tuple[JsonObject, str]] = [
        (whole | {"kv_route": "other"}, "KV_AFTER_ROUTE_CHANGE"),
        (whole | {"route": "foreign", "kv_route": "foreign"}, "ROUTE_OF_ANOTHER_ROUTER"),
        (whole | {"kv_identity": two[0]}, "KV_AFTER_ROUTE_CHANGE"),
        (whole | {"generation": 2, "kv_identity": registry.cache_identity("bot").kv_identity},
         "EXECUTION_OF_ANOTHER_GENERATION"),
        (whole | {"execution": {**_execution(whole), "slot_generations": [11]}}, "EXECUTION_OF_ANOTHER_GENERATION"),
    ]  # fmt: skip
    for document, code in breaches:
        with pytest.raises(RefusedError) as caught:
            registry.add_transaction(document, "no")
        assert caught.value.code == code
    third = registry.show("three").digest
    for document, code in (
        (route("route", [two[0], registry.show("tiny").digest]), "ROUTE_OUTSIDE_POOL"),
        (route("route", two, layers=[{"layer": 0, "chosen": [{"adapter": third, "gate": 1.0}]}]),
         "ROUTE_DEGREE_DIFFERS"),
        (route("route", two, layers=[{"layer": 0, "chosen": [{"adapter": d, "gate": 0.75} for d in two]}]),
         "ROUTE_NOT_NORMALIZED"),
        (route("route", two, pooling="mean"), "ROUTE_OF_ANOTHER_ROUTER"),
    ):  # fmt: skip
        with pytest.raises(RefusedError) as caught:
            registry.add_resolved_route(document, "no")
        assert caught.value.code == code


def _execution(document: JsonObject) -> JsonObject:
    execution = document["execution"]
    assert isinstance(execution, dict)
    return execution


def test_generations_41_42_43_of_the_document_keep_tuple_and_never_identity(
    registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    """Adapter-1 goes from r3 to r4 and back; A(43) = A(41), I_P(43) != I_P(41) (R 0x09G)."""
    registry.add_adapter(tiny.write_adapter(tmp_path / "r4", 44), "tiny", "two")
    for _ in range(40):
        registry.publish("bot", ["three"], reason="earlier")
    old = registry.publish("bot", ["one", "two@1", "three"], expect=40)
    new = registry.publish("bot", ["one", "two@2", "three"], expect=41)
    back = registry.rollback("bot", expect=42)
    assert (old.generation, new.generation, back.generation, back.restored) == (41, 42, 43, 41)
    assert back.artifacts == old.artifacts != new.artifacts
    assert back.publication != old.publication
    assert len({old.kv_identity, new.kv_identity, back.kv_identity}) == 3


def test_a_release_of_nothing_is_a_usage_error(registry: EmbeddedRegistry) -> None:
    with pytest.raises(UsageProblemError, match="RELEASE_EMPTY"):
        registry.admit(b'{"name": "x", "lane": "joint_routed", "router": null}')


def product_of(registry: EmbeddedRegistry, answer: Admitted) -> Product:
    """The typed product of an admitted release."""
    manifest = registry.show(str(answer.candidate)).manifest
    return validate(Product, manifest["product"])


def test_a_retrained_router_is_another_model_and_nothing_else_of_it(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    registry.add_router(per_module(family="mole"), "route", gates(tmp_path / "gates.safetensors"))
    before = product_of(registry, admit(registry, "posthoc_routed", router="route"))
    eye = np.eye(3, tiny.HIDDEN, dtype=np.float32)
    retrained = gates(tmp_path / "retrained.safetensors", **{f"{tiny.MODULES[0]}.gate": eye})
    registry.add_router(per_module(family="mole"), "route", retrained)
    after = product_of(registry, admit(registry, "posthoc_routed", router="route@2"))
    changed = {name for name in Product.model_fields if getattr(before, name) != getattr(after, name)}
    assert changed == {"C"}
    assert before.model != after.model
    again = product_of(registry, admit(registry, "posthoc_routed", router="route@1"))
    assert again.model == before.model


def test_a_release_on_an_unread_base_waits_for_its_condition(
    registry: EmbeddedRegistry, tiny_base: Path, tmp_path: Path
) -> None:
    registry.add_base(tiny_base, "shapes", evidence="structural")
    registry.add_adapter(tiny.write_adapter(tmp_path / "loose", 9), "shapes", "loose")
    registry.add_continual_state(state("shapes", ["loose"], []), "s1")
    waiting = admit(registry, "olora_ordered", state="s1")
    assert (waiting.outcome, waiting.candidate) == ("conditional", None)
    spec = {"name": "release", "lane": "olora_ordered", "state": "s1", "acknowledge": ["BASE_EVIDENCE_STRUCTURAL"]}
    assert registry.admit(json.dumps(spec).encode()).candidate is not None
    assert registry.admit(json.dumps(spec).encode(), dry_run=True).admission is None


def test_a_state_is_released_in_its_own_lane_and_with_its_own_selector(
    registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    file = raters(tmp_path / "raters.safetensors")
    registry.add_router(rater_router(), "raters", file)
    registry.add_router(rater_router() | {"mask": "valid_rows"}, "others", file)
    for count in (1, 2, 3):
        registry.add_continual_state(named(*POOL[:count]), f"s{count}")
    assert found(admit(registry, "amlora_selector", router="raters", state="s3")) == {"LANE_CONTRADICTED"}
    mixed = named(*POOL, lane="amlora_selector", concatenation="separate_branches", selector="raters")
    registry.add_continual_state(mixed, "mixed")
    assert found(admit(registry, "amlora_selector", router="others", state="mixed")) == {"LANE_CONTRADICTED"}


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (ResolvedRouteManifest, route(DIGEST, [DIGEST, DIGEST], reconstruction=DIGEST)),
        (ResolvedRouteManifest, route(DIGEST, [DIGEST, DIGEST], layers=[])),
        (ResolvedRouteManifest, route(DIGEST, [DIGEST, DIGEST], layers=[{"layer": 1, "chosen": []}] * 2)),
        (
            ResolvedRelease,
            {
                "base": DIGEST, "lane": "joint_routed", "router": DIGEST, "state": "none", "package": "live",
                "acknowledge": ["BBB", "AAA"],
            },
        ),
    ],
)  # fmt: skip
def test_what_no_route_and_no_release_can_say_is_refused_by_type(model: type[Record], document: JsonObject) -> None:
    with pytest.raises(RefusedError):
        validate(model, document)


def test_a_route_may_be_a_contract_to_choose_again(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    registry.add_router(per_module(), "route", gates(tmp_path / "gates.safetensors"))
    again = route("route", ["one", "two"], layers=[], reconstruction=DIGEST)
    assert registry.add_resolved_route(again, "contract").created
