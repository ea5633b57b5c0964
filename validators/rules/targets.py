"""Predicate B: every factor acts on a module the target base has, with that shape and orientation."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.decision import Finding
from validators.context import WHOLE, Context, finding


def modules(context: Context) -> Iterator[Finding]:
    """``a [r, d_in]`` and ``b [d_out, r]`` against ``<module>.weight [d_out, d_in]``.

    A base without weight names is left to the rule on evidence, which makes it a condition.
    """
    weights = context.base.weights
    if isinstance(weights, str):
        return
    for profile, digests in context.factors.items():
        name = profile.site[0] + ".weight"
        weight = weights.get(name)
        if weight is None:
            for digest in digests:
                yield finding("TARGET_MODULE_MISSING", digest, profile.path, name, "not a weight of the base")
        elif weight.shape != profile.delta:
            observed = _oriented(weight.shape, profile.delta)
            for digest in digests:
                yield finding("TARGET_SHAPE_MISMATCH", digest, profile.path, _dims(weight.shape), observed)


def sites(context: Context) -> Iterator[Finding]:
    """Expert, map head and route side are parts of a site only where the base has them."""
    for profile, digests in context.factors.items():
        if profile.site[1:] != WHOLE:
            observed = "expert {}, map head {}, route side {}".format(*profile.site[1:])
            for digest in digests:
                yield finding("SITE_NOT_IN_BASE", digest, profile.path, "a whole module", observed)


def _oriented(weight: tuple[int, ...], delta: tuple[int, int]) -> str:
    return f"{_dims(delta)}, transposed" if weight == delta[::-1] else _dims(delta)


def _dims(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
