"""Predicate B: every factor acts on a module the target base has, with that shape and orientation."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.decision import Finding
from validators.context import Context, finding


def modules(context: Context) -> Iterator[Finding]:
    """``a [r, d_in]`` and ``b [d_out, r]`` against ``<module>.weight [d_out, d_in]``.

    A base without weight names is left to the rule on evidence, which makes it a condition.
    """
    weights = context.base.weights
    if isinstance(weights, str):
        return
    for digest, factor in context.factors():
        name = factor.module + ".weight"
        weight, shape = weights.get(name), (factor.b.shape[0], factor.a.shape[1])
        if weight is None:
            yield finding("TARGET_MODULE_MISSING", digest, ("factors", factor.module), name, "not a weight of the base")
        elif weight.shape != shape:
            path = ("factors", factor.module)
            yield finding("TARGET_SHAPE_MISMATCH", digest, path, _dims(weight.shape), _oriented(weight.shape, shape))


def sites(context: Context) -> Iterator[Finding]:
    """Expert, map head and route side are parts of a site only where the base has them."""
    for digest, factor in context.factors():
        if factor.expert is None and factor.map_head is None and factor.route_side is None:
            continue
        observed = f"expert {factor.expert}, map head {factor.map_head}, route side {factor.route_side}"
        yield finding("SITE_NOT_IN_BASE", digest, ("factors", factor.module), "a plain module", observed)


def _dims(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _oriented(weight: tuple[int, ...], delta: tuple[int, int]) -> str:
    return f"{_dims(delta)}, transposed" if weight == delta[::-1] else _dims(delta)
