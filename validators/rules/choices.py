"""Predicate C: the method, its coordinate space and exactly the choices it owns (R 0x05A to 0x05F)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schemas.decision import Finding
from schemas.methods import ALIASES, SPACES, Method, Space
from validators.context import Context, finding

CHOICES: Final = ("rank", "ties", "dare", "prune", "svd")
_OWN: Final[dict[Method, frozenset[str]]] = {
    "cat": frozenset(),
    "delta_svd": frozenset(),
    "ties": frozenset({"ties"}),
    "dare_linear": frozenset({"dare"}),
    "dare_ties": frozenset({"dare", "ties"}),
    "factor_linear": frozenset(),
    "magnitude_prune": frozenset({"prune"}),
    "dense_sum": frozenset(),
}
_KEEP_THE_DELTA: Final[frozenset[Method]] = frozenset({"cat", "dense_sum"})


def owned_choices(method: Method, space: Space) -> frozenset[str]:
    """The choices a method has in a space; a delta that is refactored also has a rank and a decomposition."""
    refactored = space == "delta" and method not in _KEEP_THE_DELTA
    return _OWN[method] | (frozenset({"rank", "svd"}) if refactored else frozenset())


def space(context: Context) -> Iterator[Finding]:
    """The coordinate space is declared and the method is defined in it; what depends on the gauge says so."""
    spec = context.spec
    offered = SPACES[spec.method]
    if spec.space is None:
        yield finding("SPACE_UNDECLARED", "spec", ("space",), " or ".join(offered), "none")
    elif spec.space not in offered:
        yield finding("SPACE_NOT_OFFERED", "spec", ("space",), " or ".join(offered), spec.space)
    elif spec.space == "factor":
        yield finding("FACTOR_METHOD_GAUGE", "spec", ("space",), "delta, for a sum of deltas", spec.space)


def alias(context: Context) -> Iterator[Finding]:
    """A recorded alias means the recorded method and space."""
    spec = context.spec
    if spec.alias is None:
        return
    meant = ALIASES.get(spec.alias)
    if meant != (spec.method, spec.space):
        expected = "no alias" if meant is None else " in ".join(meant)
        yield finding("ALIAS_MISMATCH", "spec", ("alias",), expected, spec.alias)


def owned(context: Context) -> Iterator[Finding]:
    """Every choice the method owns is made, and no other."""
    spec = context.spec
    offered = SPACES[spec.method]
    # Without a usable space only what holds in every space can be said.
    spaces = (spec.space,) if spec.space in offered else offered
    each = [owned_choices(spec.method, one) for one in spaces if one is not None]
    required, possible = frozenset.intersection(*each), frozenset.union(*each)
    for name in CHOICES:
        given = getattr(spec.choices, name) is not None
        if name in required and not given:
            code = "RANK_REQUIRED" if name == "rank" else "CHOICES_MISSING"
            yield finding(code, "spec", ("choices", name), f"{name} for {spec.method}", "none")
        if given and name not in possible:
            code = "RANK_NOT_OFFERED" if name == "rank" else "CHOICES_NOT_OWNED"
            yield finding(code, "spec", ("choices", name), f"no {name} for {spec.method}", "given")


def rank(context: Context) -> Iterator[Finding]:
    """The output rank is at most the smaller side of every module (R 0x05B)."""
    wanted = context.spec.choices.rank
    if wanted is None:
        return
    limit, module = min((profile.largest_rank, profile.site[0]) for profile in context.factors)
    if wanted > limit:
        path = ("choices", "rank")
        yield finding("RANK_TOO_LARGE", "spec", path, f"at most {limit}, the smaller side of {module}", str(wanted))


def release_only(context: Context) -> Iterator[Finding]:
    """A dense sum is not an adapter; it exists only as a dense release."""
    if context.spec.method == "dense_sum":
        yield finding("METHOD_ONLY_DENSE_RELEASE", "spec", ("method",), "a low-rank method", "dense_sum")
