"""Predicate F: numbers, scales and ranks of the factors, each alone and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schemas.adapter import ScaleRule
from schemas.decision import Finding
from validators.context import Context, finding

FLOATS: Final = frozenset({"F64", "F32", "BF16", "F16"})
FAMILY_SCALES: Final[dict[str, frozenset[ScaleRule]]] = {
    "lora": frozenset({"alpha_over_r", "explicit"}),
    "rslora": frozenset({"alpha_over_sqrt_r"}),
}
"""The scale rules of each family (V 0x04, 0x04F); a family outside the table is refused for itself."""


def dtypes(context: Context) -> Iterator[Finding]:
    """Both factors hold floating-point numbers the arithmetic reads exactly."""
    for digest, factor in context.factors():
        for role, tensor in (("a", factor.a), ("b", factor.b)):
            if tensor.dtype not in FLOATS:
                path = ("factors", factor.module, role, "dtype")
                yield finding("DTYPE_NOT_FLOAT", digest, path, ", ".join(sorted(FLOATS)), tensor.dtype)


def extras(context: Context) -> Iterator[Finding]:
    """A tensor that no sum of s B A carries would be dropped without a word."""
    for digest, factor in context.factors():
        for role in sorted(factor.extra):
            path = ("factors", factor.module, "extra", role)
            yield finding("EXTRA_TENSOR_NOT_COMPOSED", digest, path, "a and b only", role)


def scale_rules(context: Context) -> Iterator[Finding]:
    """The scale rule is the family's own; the other one is off by the square root of the rank."""
    for member in context.members:
        allowed = FAMILY_SCALES.get(member.adapter.family)
        if allowed is None:
            continue
        for factor in member.adapter.factors:
            if factor.scale.rule not in allowed:
                path = ("factors", factor.module, "scale", "rule")
                yield finding(
                    "SCALE_INCONSISTENT", member.digest, path, " or ".join(sorted(allowed)), factor.scale.rule
                )


def equal_ranks(context: Context) -> Iterator[Finding]:
    """Factor coordinates add A to A and B to B, which needs one rank a module (R 0x05D)."""
    if context.spec.space != "factor":
        return
    for site, factors in context.sites.items():
        ranks = sorted({factor.rank for factor in factors})
        if len(ranks) > 1:
            yield finding(
                "RANKS_UNEQUAL", "spec", ("factors", *site_path(site)), "one rank", ", ".join(map(str, ranks))
            )


def module_sets(context: Context) -> Iterator[Finding]:
    """Members that adapt different modules are composed over the union."""
    everywhere = sum(len(factors) == len(context.members) for factors in context.sites.values())
    if everywhere < len(context.sites):
        observed = f"{everywhere} of {len(context.sites)} in every member"
        yield finding("MODULE_SETS_DIFFER", "spec", ("factors",), "the same modules", observed)


def scales(context: Context) -> Iterator[Finding]:
    """Heterogeneous scales go into the blocks, never one scale over all (R 0x05B)."""
    unequal = sum(len({factor.scale.value for factor in factors}) > 1 for factors in context.sites.values())
    if unequal:
        yield finding("SCALES_DIFFER", "spec", ("factors",), "one scale a module", f"{unequal} modules with several")


def site_path(site: tuple[str, int, int, str]) -> tuple[str | int, ...]:
    """A site as a path: the module alone where the base has nothing finer."""
    return (site[0],) if site[1:] == (-1, -1, "") else site
