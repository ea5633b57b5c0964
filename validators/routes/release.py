"""Whether a release is one legal lane: route, ownership and history of the same training (R 0x09C, 0x09F)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.canonical import canonical_bytes
from schemas.continual import ContinualStateManifest
from schemas.decision import Decision, Finding
from schemas.digests import Digest, manifest_digest
from schemas.methods import Lane
from schemas.release import ResolvedRelease
from schemas.router import RouterManifest
from validators.context import finding
from validators.decision import RULES_VERSION, ordered, outcome, predicates, vector
from validators.lanes import OWNED, is_dynamic
from validators.routes.families import Promise, contradictions, promise
from validators.routes.router import judge_router

_LANES: Final[Mapping[Lane, Promise]] = MappingProxyType(
    {
        "shared_a_selected": promise(topology="shared_a", rule="top_k|threshold"),
        "shared_a_dense": promise(topology="shared_a", rule="all"),
        "amlora_selector": promise(topology="independent", rule="all", activation="softmax", family="amlora"),
        "joint_routed": promise(topology="independent", family="loramoe|sira|milora_routed"),
        "staged_routed": promise(lifetime="sequence", votes="last_router|majority", family="mixture_of_loras"),
        "posthoc_routed": promise(topology="independent", family="mole|xlora|meteora"),
        "pregated_fused": promise(family="lora_switch", feature_source="preceding_layer|prior_pass"),
        "task_composed": promise(lifetime="task", family="lorahub"),
        "instance_factors": promise(topology="rank_one", lifetime="instance", family="conditional_mixlora"),
    }
)
"""What the route of each lane is, as far as a manifest says it."""
_UNRELEASED: Final[frozenset[Lane]] = frozenset({"independent", "static_fusion"})


@dataclass(frozen=True)
class ReleaseParts:
    """A release and what it names; `witness` tells what the additivity witness found, in words."""

    spec: ResolvedRelease
    base: BaseManifest
    adapters: Mapping[Digest, AdapterManifest]
    router: RouterManifest | None
    state: ContinualStateManifest | None
    witness: str | None = None


def decide_release(parts: ReleaseParts) -> Decision:
    """Judge a release by every rule; the answer has the form of any other decision."""
    findings = ordered(_findings(parts))
    return Decision(
        outcome=outcome(findings),
        vector=vector(findings),
        predicates=predicates(parts.spec.lane, findings),
        findings=findings,
        inputs=_inputs(parts),
    )


def _findings(parts: ReleaseParts) -> Iterator[Finding]:
    yield from _evidence(parts)
    if parts.spec.lane in _UNRELEASED:
        yield finding("LANE_NOT_COMPOSABLE", "spec", ("lane",), "a routed or continual lane", parts.spec.lane)
        return
    yield from _parts(parts)
    if parts.router is not None:
        yield from judge_router(parts.router, parts.adapters)
        lane = parts.spec.lane
        yield from contradictions(parts.router, _LANES.get(lane, {}), "LANE_CONTRADICTED", lane)
        yield from _one_route(parts.spec.lane, parts.router)
    if parts.router is not None and parts.state is not None and parts.state.selector != parts.router.digest:
        yield finding("LANE_CONTRADICTED", "state", ("selector",), parts.router.digest, parts.state.selector)
    yield from _package(parts)


def _evidence(parts: ReleaseParts) -> Iterator[Finding]:
    if parts.base.weights_digest == "not_verified":
        code = "BASE_EVIDENCE_DECLARED" if parts.base.weights == "not_verified" else "BASE_EVIDENCE_STRUCTURAL"
        yield finding(code, parts.spec.base, ("weights_digest",), "every weight hashed", "not_verified")


def _parts(parts: ReleaseParts) -> Iterator[Finding]:
    """A router exactly where the lane routes, a history exactly where it has one."""
    lane = parts.spec.lane
    routed, ordered_tasks = is_routed(lane), "S" in OWNED[lane]
    if routed != (parts.router is not None):
        code = "ROUTER_MISSING" if routed else "ROUTER_FOREIGN"
        yield finding(code, "spec", ("router",), "a router" if routed else "none", parts.spec.router)
    if ordered_tasks != (parts.state is not None):
        code = "HISTORY_MISSING" if ordered_tasks else "HISTORY_FOREIGN"
        yield finding(code, "spec", ("state",), "a continual state" if ordered_tasks else "none", parts.spec.state)
    if parts.state is not None and ordered_tasks and parts.state.lane != lane:
        yield finding("LANE_CONTRADICTED", "state", ("lane",), lane, parts.state.lane)


def is_routed(lane: Lane) -> bool:
    """Whether a release of the lane has a router; a task's fixed coefficients count as one that never runs."""
    return is_dynamic(lane) or lane == "task_composed"


def _one_route(lane: Lane, router: RouterManifest) -> Iterator[Finding]:
    """A pre-gated route is one for all expanded layers (R 0x08I)."""
    if lane == "pregated_fused" and router.extents.layers != 1:
        path = ("extents", "layers")
        yield finding("LANE_CONTRADICTED", "router", path, "1 for all expanded layers", str(router.extents.layers))


def _package(parts: ReleaseParts) -> Iterator[Finding]:
    """An operator that depends on its input is no matrix; an ordered sum is merged by a composition."""
    if parts.spec.package == "live":
        return
    if is_dynamic(parts.spec.lane):
        observed = f"static; {parts.witness or 'no router to try'}"
        yield finding("DYNAMIC_PACKAGED_STATIC", "spec", ("package",), "live", observed)
    else:
        yield finding("LANE_NOT_SUPPORTED", "spec", ("package",), "live", "static")


def _inputs(parts: ReleaseParts) -> Digest:
    spec = parts.spec.document()
    del spec["acknowledge"]
    return manifest_digest("inputs", canonical_bytes({"rules": RULES_VERSION, "spec": spec}))
