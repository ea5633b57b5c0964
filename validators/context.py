"""What every rule looks at: the spec with its manifests, gathered once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final, NamedTuple, TypeVar

from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, Order, ScaleRule
from schemas.base import BaseManifest
from schemas.composition import ResolvedSpec
from schemas.decision import Finding
from schemas.digests import Digest
from schemas.errors import Path, Problem
from validators.codes import CODES
from validators.errors import CouldNotCheckError

Site = tuple[str, int, int, str]
STACKED: Final[Order] = "B[o,r,e]A[e,r,i]"
WHOLE: Final = (-1, -1, "")
"""The end of a site that is a whole module: no expert, map head or route side."""
T = TypeVar("T")


class Profile(NamedTuple):
    """All that rules look at in one factor.

    `delta` is ``(d_out, d_in)`` of one expert, `kernel` the further dimensions of a, `dtypes` those of a and b, `extra`
    the shapes of further tensors by role, `experts` how many are stacked.
    """

    family: str
    source: str
    site: Site
    order: Order
    kernel: tuple[int, ...]
    delta: tuple[int, int]
    rank: int
    rule: ScaleRule
    scale: float
    dtypes: tuple[str, str]
    extra: tuple[tuple[str, tuple[int, ...]], ...]
    experts: int | None

    @property
    def path(self) -> Path:
        """Where it stands in its adapter: the module alone where nothing finer is named."""
        return ("factors", self.site[0]) if self.site[1:] == WHOLE else ("factors", *self.site)

    @property
    def weight(self) -> tuple[int, ...]:
        """The shape of the base weight that the delta is added to; stacked experts may also have their axes turned."""
        if self.experts is not None:
            return (self.experts, *self.delta)
        return self.delta[::-1] if self.order == "(B@A)^T" else (*self.delta, *self.kernel)

    @property
    def largest_rank(self) -> int:
        """The smaller side of the delta as a matrix, kernels flat."""
        d_out, d_in = self.delta
        return min(d_out, d_in * prod(self.kernel))

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the tensors beside a and b."""
        return tuple(role for role, _ in self.extra)


class Outline(NamedTuple):
    """What an adapter says beside its factors; the fields are those of its manifest."""

    base: Digest
    family: str
    initializer: str
    payload: str
    full_replacements: tuple[FullReplacement, ...]
    training: Mapping[str, str]


@dataclass(frozen=True)
class Member:
    """One adapter of the spec with the base it was made for.

    Its manifest, which is large for a large model, is not kept: `adapters` gives it again.
    """

    digest: Digest
    adapter: Outline
    base: BaseManifest
    adapters: Mapping[Digest, AdapterManifest]

    def whole(self) -> AdapterManifest:
        """The manifest, for the few rules that look at tensors."""
        return self.adapters[self.digest]


@dataclass(frozen=True)
class Context:
    """A spec and the manifests it names. An adapter named twice in the spec stands in `members` once.

    `factors` are the distinct ones, each with the adapters that have it. Members mostly repeat each other's shapes, so
    that the rules have a few hundred profiles to look at where the manifests hold many thousand factors.
    """

    spec: ResolvedSpec
    base: BaseManifest
    members: tuple[Member, ...]
    factors: Mapping[Profile, list[Digest]]
    repeating: frozenset[Digest] = frozenset()

    @cached_property
    def sites(self) -> dict[Site, list[Profile]]:
        """The distinct factors by the place where they act."""
        found: defaultdict[Site, list[Profile]] = defaultdict(list)
        for profile in self.factors:
            found[profile.site].append(profile)
        return dict(found)


def gather(
    spec: ResolvedSpec,
    base: BaseManifest,
    adapters: Mapping[Digest, AdapterManifest],
    bases: Mapping[Digest, BaseManifest],
    repeating: frozenset[Digest] = frozenset(),
) -> Context:
    """Put the manifests beside the spec; `bases` need not repeat the spec's own base.

    Each adapter is asked for once and let go, so that `adapters` may read them one by one.

    Raises:
        CouldNotCheckError: `MANIFEST_MISSING`.
    """
    members: list[Member] = []
    factors: defaultdict[Profile, list[Digest]] = defaultdict(list)
    for digest in sorted({member.adapter for member in spec.members}):
        adapter = _known(adapters, digest, "adapter")
        own = base if adapter.base == spec.base else _known(bases, adapter.base, "base")
        members.append(Member(digest, _outline(adapter), own, adapters))
        for factor in adapter.factors:
            factors[profile_of(factor, adapter.family)].append(digest)
    return Context(spec, base, tuple(members), factors, repeating)


def _outline(adapter: AdapterManifest) -> Outline:
    return Outline(*(getattr(adapter, name) for name in Outline._fields))


def profile_of(factor: FactorManifest, family: str) -> Profile:
    """A factor as the rules see it."""
    a, b, scale = factor.a, factor.b, factor.scale
    return Profile(
        family,
        factor.source,
        factor.site,
        factor.order,
        a.shape[2:],
        (b.shape[0], a.shape[1]),
        factor.rank,
        scale.rule,
        scale.value,
        (a.dtype, b.dtype),
        tuple((role, factor.extra[role].shape) for role in sorted(factor.extra)) if factor.extra else (),
        a.shape[0] // factor.rank if factor.order == STACKED else None,
    )


def finding(code: str, subject: str, path: Path, expected: str, observed: str) -> Finding:
    """A finding with the predicate, coordinate and severity its code has in the table."""
    record = CODES[code]
    return Finding(
        code=code,
        predicate=record.predicate,
        coordinate=record.coordinate,
        severity=record.severity,
        subject=subject,
        path=path,
        expected=expected,
        observed=observed,
    )


def _known(manifests: Mapping[Digest, T], digest: Digest, kind: str) -> T:
    try:
        return manifests[digest]
    except KeyError as error:
        raise CouldNotCheckError(
            Problem(
                code="MANIFEST_MISSING",
                expected=f"the {kind} manifest {digest}",
                observed="not given",
                hint="Register it, or restore it from a backup, and ask again.",
            )
        ) from error
