"""Every lane that has a router, end to end with real tensors: registered, admitted, refused, published, rolled back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors.numpy import save_file

from registry.client import EmbeddedRegistry
from registry.errors import RefusedError
from registry.service.results import Admitted
from schemas.canonical import JsonObject, JsonValue
from schemas.digests import blob_digest
from schemas.methods import Lane
from tests.routed.documents import TOP_K
from tests.routed.lanes import ROUTES, lane_router, rows
from tests.routed.test_routed_histories import named
from tests.routed.test_routed_releases import POOL, admit, found, hydra, served
from tests.routed.test_routed_routers import gates, per_module
from tests.support import tiny

EXPERTS = ("shared_a_selected", "shared_a_dense", "joint_routed")
"""Lanes whose pool is the experts of one trained file, with its router beside them."""


def pool_of(registry: EmbeddedRegistry, folder: Path, lane: Lane) -> list[JsonValue]:
    """The lane's candidates, registered: experts of one file, updates of rank one, or whole adapters."""
    if lane in EXPERTS:
        registry.add_adapter(hydra(folder / "experts", shared=lane != "joint_routed"), "tiny", "experts")
        return [{"adapter": "experts", "expert": number} for number in range(3)]
    if lane != "instance_factors":
        return [*POOL]
    names = [f"factor{seed}" for seed in (4, 5, 6)]
    for seed, name in enumerate(names, 4):
        registry.add_adapter(tiny.write_adapter(folder / name, seed, rank=1), "tiny", name)
    return [*names]


def register(registry: EmbeddedRegistry, folder: Path, lane: Lane) -> str:
    """The lane's router with its tensors, and its history where it has one; the name of one of its adapters."""
    pool = pool_of(registry, folder, lane)
    if lane in EXPERTS:
        file = folder / "experts" / "adapter_model.safetensors"
        roles: JsonObject = {f"base_model.model.{module}.lora_route.weight": "gate" for module in tiny.MODULES}
    else:
        file, roles = folder / "gates.safetensors", {"gate.weight": "gate"}
        shape = (rows(lane, len(pool)), 1 if lane == "task_composed" else tiny.HIDDEN)
        save_file({"gate.weight": np.random.default_rng(11).normal(size=shape).astype(np.float32)}, file)
    registry.add_router(lane_router(lane, "tiny", pool, tensors=roles), "route", file)
    first = pool[0]
    return str(first["adapter"]) if isinstance(first, dict) else str(first)


def parts(registry: EmbeddedRegistry, lane: Lane) -> dict[str, str]:
    """What the lane's release names beside the lane."""
    if lane != "amlora_selector":
        return {"router": "route"}
    for count in (1, 2):
        registry.add_continual_state(named(*POOL[:count]), f"s{count}")
    mixed = named(*POOL, lane=lane, concatenation="separate_branches", selector="route")
    registry.add_continual_state(mixed, "s3")
    return {"router": "route", "state": "s3"}


def other_lanes(lane: Lane) -> Iterator[Lane]:
    """Every lane but this one."""
    return (other for other in get_args(Lane) if other != lane)


@pytest.mark.parametrize("lane", ROUTES)
def test_a_lane_is_registered_admitted_published_and_rolled_back(
    registry: EmbeddedRegistry, tmp_path: Path, lane: Lane
) -> None:
    part = register(registry, tmp_path, lane)
    named_parts = parts(registry, lane)
    assert all(admit(registry, other, **named_parts).outcome == "refused" for other in other_lanes(lane))
    static = admit(registry, lane, **named_parts, package="static")
    assert static.candidate is None
    (refusal,) = static.decision.refusals
    if lane == "task_composed":
        assert refusal.code == "LANE_NOT_SUPPORTED"
    else:
        assert refusal.code == "DYNAMIC_PACKAGED_STATIC"
        assert refusal.observed.startswith("static; additivity residual")
        assert float(refusal.observed.split()[3]) > 0.01
    served(registry, admit(registry, lane, **named_parts), part)


def test_every_lane_but_the_plain_ones_and_the_ordered_one_has_a_router_here() -> None:
    assert {*get_args(Lane)} - {*ROUTES} == {"independent", "static_fusion", "olora_ordered"}


def test_a_shared_a_schedule_over_unequal_a_is_refused(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    """Every A_j has the shape of a shared one and is another tensor (R 0x09H)."""
    pool = pool_of(registry, tmp_path, "joint_routed")
    file = tmp_path / "experts" / "adapter_model.safetensors"
    roles: JsonObject = {f"base_model.model.{module}.lora_route.weight": "gate" for module in tiny.MODULES}
    for lane in ("shared_a_selected", "shared_a_dense"):
        with pytest.raises(RefusedError) as caught:
            registry.add_router(lane_router(lane, "tiny", pool, tensors=roles), "route", file)
        assert [problem.code for problem in caught.value.problems] == ["SHARED_A_UNEQUAL"] * len(tiny.MODULES)
    assert registry.add_router(lane_router("joint_routed", "tiny", pool, tensors=roles), "route", file).created


def test_scales_are_not_lost_in_one_concatenation(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    """Factors of the same shapes with another alpha are another update (R 0x09H)."""
    registry.add_adapter(tiny.write_adapter(tmp_path / "hot", 2, lora_alpha=16), "tiny", "hot")
    registry.add_continual_state(named("one"), "s1")
    assert registry.add_continual_state(named("one", "two", concatenation="one_scale"), "even").created
    with pytest.raises(RefusedError) as caught:
        registry.add_continual_state(named("one", "hot", concatenation="one_scale"), "lost")
    assert {problem.code for problem in caught.value.problems} == {"SCALES_LOST_IN_CONCATENATION"}
    assert registry.add_continual_state(named("one", "hot"), "kept").created


def test_skipped_work_is_shown_by_a_trace_and_not_by_k(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    """Two of three gates are kept; that the third was not computed is another claim (R 0x09H)."""
    file, chosen = gates(tmp_path / "gates.safetensors"), per_module(**TOP_K)
    for trace in ("none", "not_verified"):
        with pytest.raises(RefusedError) as caught:
            registry.add_router(chosen | {"execution": "sparse", "trace": trace}, "claimed", file)
        assert [problem.code for problem in caught.value.problems] == ["SPARSE_WITHOUT_TRACE"]
    assert registry.add_router(chosen, "dense", file).created
    traced = chosen | {"execution": "sparse", "trace": blob_digest(b"which experts ran")}
    assert registry.add_router(traced, "traced", file).created


def test_an_average_of_factors_is_never_a_sum_of_deltas(registry: EmbeddedRegistry) -> None:
    """Cross terms B_i A_j appear; declared as its own method, it says that it depends on the gauge (R 0x05D, 0x09H)."""

    def decided(space: str) -> Admitted:
        members = [{"ref": name, "weight": 0.5} for name in ("one", "two")]
        spec = {"name": "mean", "base": "tiny", "members": members, "method": "factor_linear", "space": space}
        return registry.admit(json.dumps(spec).encode(), dry_run=True)

    assert {item.code for item in decided("delta").decision.refusals} == {"SPACE_NOT_OFFERED"}
    told = decided("factor")
    assert (told.outcome, found(told)) == ("admitted", {"FACTOR_METHOD_GAUGE"})
