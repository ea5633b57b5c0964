"""What each routed method's name promises about its route (R 0x03, 0x04, 0x06H, 0x07B to 0x07F, 0x08H, 0x08I)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from schemas.decision import Finding
from schemas.router import RouterManifest
from validators.context import finding

Promise = Mapping[str, frozenset[str]]


def promise(**fields: str) -> Promise:
    """Fields and their words; alternatives are joined by a bar."""
    return MappingProxyType({name: frozenset(words.split("|")) for name, words in fields.items()})


ROUTES: Final[Mapping[str, Promise]] = MappingProxyType(
    {
        "hydralora": promise(topology="shared_a", lifetime="token", activation="softmax|uniform"),
        "loramoe": promise(topology="independent", lifetime="token", activation="softmax", rule="all"),
        "mixture_of_loras": promise(lifetime="sequence", votes="last_router|majority", label_role="target"),
        "mole": promise(topology="independent", activation="softmax", rule="all"),
        "amlora": promise(lifetime="token", activation="softmax", rule="all", feature_source="branch_output"),
        "lorahub": promise(lifetime="task", activation="raw", persistence="task_artifact"),
        "milora_routed": promise(lifetime="request", rule="top_k", persistence="request_state"),
        "conditional_mixlora": promise(topology="rank_one", lifetime="instance", rule="top_k"),
        "sira": promise(lifetime="token", rule="top_k", overflow="base_path"),
        "xlora": promise(lifetime="token", feature_source="prior_pass", activation="softmax"),
        "meteora": promise(lifetime="token", rule="top_k"),
        "lora_switch": promise(lifetime="token", rule="top_k", feature_source="preceding_layer|prior_pass"),
    }
)
"""Family, field, and the words it may have; a family outside the table promises nothing."""


def judge(router: RouterManifest) -> Iterator[Finding]:
    """Every field that contradicts the family's route."""
    yield from contradictions(router, ROUTES.get(router.family, {}), "ROUTE_FAMILY_CONTRADICTED", router.family)


def contradictions(router: RouterManifest, promise: Promise, code: str, whose: str) -> Iterator[Finding]:
    """Each field that has none of the promised words."""
    for field, words in promise.items():
        path, observed = _read(router, field)
        if observed not in words:
            yield finding(code, "router", path, f"{' or '.join(sorted(words))} for {whose}", observed)


def _read(router: RouterManifest, field: str) -> tuple[tuple[str, ...], str]:
    if field == "activation":
        return ("gates", field), router.gates.activation
    if field == "rule":
        return ("selection", field), router.selection.rule
    if field == "overflow":
        return ("capacity", field), router.capacity if isinstance(router.capacity, str) else router.capacity.overflow
    return (field,), str(getattr(router, field))
