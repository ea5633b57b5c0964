"""Predicate B: every factor acts on a module the target base has, with that shape and orientation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from schemas.base import BaseManifest
from schemas.catalogue.methods import family
from schemas.decision import Finding
from validators.context import Context, Profile, finding
from validators.rules.roles import is_packed

AXES: Final = ("expert", "map_head", "route_side")
_ROUTED_PARTS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "moa_attention": frozenset({"expert"}),
        "switchhead": frozenset(AXES),
        "mod_training": frozenset(),
        "mod_decode": frozenset(),
        "mode_staged": frozenset({"expert"}),
        "mode_integrated": frozenset({"expert"}),
        "moe_llava": frozenset({"expert"}),
    }
)


def modules(context: Context) -> Iterator[Finding]:
    """``a [r, d_in]`` and ``b [d_out, r]`` against ``<module>.weight [d_out, d_in]``, turned, with a kernel or stacked.

    A base without weight names is left to the rule on evidence, which makes it a condition; the shapes of packed
    factors are left to the rules that refuse them as such.
    """
    if isinstance(context.base.weights, str):
        return
    for profile, digests in context.factors.items():
        module, stacked = profile.site[0], profile.experts is not None
        shape = context.base.stack_of(module) if stacked else context.base.shape_of(module)
        if shape is None:
            name = module if stacked else f"{module}.weight"
            for digest in digests:
                yield finding("TARGET_MODULE_MISSING", digest, profile.path, name, "not a weight of the base")
        elif not _fits(shape, profile) and not is_packed(profile):
            observed = _oriented(shape, profile.weight)
            for digest in digests:
                yield finding("TARGET_SHAPE_MISMATCH", digest, profile.path, _dims(shape), observed)


def _fits(shape: tuple[int, ...], profile: Profile) -> bool:
    """Whether the delta lies in a weight of this shape; adapters of stacked experts were written for either axis."""
    return shape == profile.weight or (profile.experts is not None and shape == (profile.experts, *profile.delta[::-1]))


def sites(context: Context) -> Iterator[Finding]:
    """Expert, map head and route side are parts of a site where the base has them; a pool counts its own experts."""
    parts = axes(context.base)
    for profile, digests in context.factors.items():
        contract = family(profile.family)
        offered = parts | {"expert"} if contract is not None and contract.form == "routed" else parts
        named = {axis for axis, step in zip(AXES, profile.site[1:], strict=True) if step not in (-1, "")}
        if not named <= offered:
            expected = f"a whole module, or {', '.join(sorted(offered))}" if offered else "a whole module"
            observed = "expert {}, map head {}, route side {}".format(*profile.site[1:])
            for digest in digests:
                yield finding("SITE_NOT_IN_BASE", digest, profile.path, expected, observed)


def axes(base: BaseManifest) -> frozenset[str]:
    """The parts of a module that the routes of the base tell apart; all of them where the method is its own."""
    if isinstance(base.compute_contracts, str):
        return frozenset()
    return frozenset().union(*(_ROUTED_PARTS.get(item.method, frozenset(AXES)) for item in base.compute_contracts))


def _oriented(weight: tuple[int, ...], delta: tuple[int, ...]) -> str:
    return f"{_dims(delta)}, transposed" if weight == delta[::-1] else _dims(delta)


def _dims(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
