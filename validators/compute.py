"""Compute contracts: how far two are apart, and whether one is what its method's name says (C 0x08A to 0x08K)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal

from schemas.compute import FIELDS, ComputeContract, ComputeContractManifest, OperatingParameters, built_in
from schemas.decision import Finding
from schemas.errors import Path
from schemas.model import NOT_VERIFIED, Key, Record
from validators.context import finding

Equivalence = Literal["equal", "different", "undetermined"]

_OWNED: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "moa_attention": frozenset({"experts", "k"}),
        "switchhead": frozenset({"experts", "k", "map_heads"}),
        "mod_training": frozenset({"capacity"}),
        "mod_decode": frozenset({"threshold"}),
        "mode_staged": frozenset({"capacity", "experts", "k"}),
        "mode_integrated": frozenset({"experts", "no_ops"}),
        "moe_llava": frozenset({"experts", "k", "capacity_factor", "evaluation_capacity_factor", "capacity_minimum"}),
    }
)
"""The operating parameters each method has, beside the routed layers, which all have (C 0x0A)."""

_TWINS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "moa_attention": ("switchhead", "MAP_AXIS_SUBSTITUTED"),
        "switchhead": ("moa_attention", "MAP_AXIS_SUBSTITUTED"),
        "mode_staged": ("mode_integrated", "COMPOSITION_SUBSTITUTED"),
        "mode_integrated": ("mode_staged", "COMPOSITION_SUBSTITUTED"),
    }
)
"""Methods whose arrays have one shape (C 0x08D, 0x08E)."""

_NAMED: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("mod_decode", "route_weight"): "PREDICTOR_USED_AS_GATE",
        ("moe_llava", "admission_policy"): "ADMISSION_ORDER_SUBSTITUTED",
        ("moe_llava", "padding_router"): "PADDING_POPULATION_CHANGED",
        ("mode_integrated", "kv_row_policy"): "NOOP_STORED_AS_ABSENT",
    }
)
"""Substitutions of one field that the document names (C 0x08K)."""


class FieldPair(Record):
    """One field of two contracts."""

    field: Key
    left: str
    right: str


class Comparison(Record):
    """How two contracts differ: `distance` counts `fields`; `undetermined` are those that one side does not know."""

    equivalence: Equivalence
    distance: int
    fields: tuple[FieldPair, ...]
    undetermined: tuple[FieldPair, ...]


def compare(left: ComputeContract, right: ComputeContract) -> Comparison:
    """Field by field; two contracts are equal when all 21 fields are, and none is unknown (C 0x08A)."""
    pairs = [FieldPair(field=name, left=getattr(left, name), right=getattr(right, name)) for name in FIELDS]
    unknown = tuple(pair for pair in pairs if NOT_VERIFIED in (pair.left, pair.right))
    known = tuple(pair for pair in pairs if pair.left != pair.right and pair not in unknown)
    equivalence: Equivalence = "different" if known else "undetermined" if unknown else "equal"
    return Comparison(equivalence=equivalence, distance=len(known), fields=known, undetermined=unknown)


def judge_contract(manifest: ComputeContractManifest) -> Iterator[Finding]:
    """Whether a record under a built-in method's name is that method, with the parameters it owns."""
    frozen = built_in().get(manifest.method)
    if frozen is not None:
        yield from _substitutions(manifest, frozen)
        yield from _parameters(manifest.parameters, _OWNED[manifest.method], manifest.method)
    experts, k = manifest.parameters.experts, manifest.parameters.k
    if isinstance(experts, int) and isinstance(k, int) and not 0 < k <= experts:
        yield _found("PARAMETER_IMPOSSIBLE", ("parameters", "k"), f"1 to {experts}, the experts", str(k))


def _substitutions(manifest: ComputeContractManifest, frozen: ComputeContract) -> Iterator[Finding]:
    for pair in compare(frozen, manifest.contract).fields:
        yield _found(_code(manifest.method, pair), ("contract", pair.field), pair.left, pair.right)
    for pair in compare(frozen, manifest.contract).undetermined:
        if pair.left != pair.right:
            yield _found("CONTRACT_FIELD_SUBSTITUTED", ("contract", pair.field), pair.left, pair.right)


def _code(method: str, pair: FieldPair) -> str:
    named = _NAMED.get((method, pair.field))
    if named is not None:
        return named
    twin, code = _TWINS.get(method, (method, ""))
    if twin != method and getattr(built_in()[twin], pair.field) == pair.right:
        return code
    return "CONTRACT_FIELD_SUBSTITUTED"


def _parameters(given: OperatingParameters, owned: frozenset[str], method: str) -> Iterator[Finding]:
    for name in OperatingParameters.model_fields:
        if name == "routed_layers":
            continue
        value = getattr(given, name)
        if name in owned and value is None:
            yield _found("PARAMETER_MISSING", ("parameters", name), f"{name} of {method}, or not_verified", "null")
        if name not in owned and value is not None:
            yield _found("PARAMETER_NOT_OWNED", ("parameters", name), f"no {name} for {method}", str(value))


def _found(code: str, path: Path, expected: str, observed: str) -> Finding:
    return finding(code, "contract", path, expected, observed)
