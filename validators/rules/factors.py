"""Predicate F: numbers, scales and ranks of the factors, each alone and against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from schemas.catalogue.methods import family
from schemas.decision import Finding
from validators.context import Context, Site, finding

FLOATS: Final = frozenset({"F64", "F32", "BF16", "F16"})


def dtypes(context: Context) -> Iterator[Finding]:
    """Both factors hold floating-point numbers the arithmetic reads exactly."""
    expected = ", ".join(sorted(FLOATS))
    for profile, digests in context.factors.items():
        for role, dtype in zip("ab", profile.dtypes, strict=True):
            if dtype not in FLOATS:
                for digest in digests:
                    yield finding("DTYPE_NOT_FLOAT", digest, (*profile.path, role, "dtype"), expected, dtype)


def scale_rules(context: Context) -> Iterator[Finding]:
    """The scale rule is the family's own; the other one is off by the square root of the rank (V 0x04, 0x04F)."""
    for profile, digests in context.factors.items():
        contract = family(profile.family)
        if contract is not None and profile.rule not in contract.scale:
            for digest in digests:
                path = (*profile.path, "scale", "rule")
                yield finding("SCALE_INCONSISTENT", digest, path, " or ".join(contract.scale), profile.rule)


def equal_ranks(context: Context) -> Iterator[Finding]:
    """Factor coordinates add A to A and B to B, which needs one rank a module (R 0x05D)."""
    if context.spec.space != "factor":
        return
    for profiles in context.sites.values():
        ranks = sorted({profile.rank for profile in profiles})
        if len(ranks) > 1:
            yield finding("RANKS_UNEQUAL", "spec", profiles[0].path, "one rank", ", ".join(map(str, ranks)))


def module_sets(context: Context) -> Iterator[Finding]:
    """Members that adapt different modules are composed over the union."""
    owners: Counter[Site] = Counter()
    for profile, digests in context.factors.items():
        owners[profile.site] += len(digests)
    everywhere = sum(count == len(context.members) for count in owners.values())
    if everywhere < len(owners):
        observed = f"{everywhere} of {len(owners)} in every member"
        yield finding("MODULE_SETS_DIFFER", "spec", ("factors",), "the same modules", observed)


def scales(context: Context) -> Iterator[Finding]:
    """Heterogeneous scales go into the blocks, never one scale over all (R 0x05B)."""
    unequal = sum(len({profile.scale for profile in profiles}) > 1 for profiles in context.sites.values())
    if unequal:
        yield finding("SCALES_DIFFER", "spec", ("factors",), "one scale a module", f"{unequal} modules with several")
