"""What every rule looks at: the spec with its manifests, gathered once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from schemas.adapter import AdapterManifest, FactorManifest
from schemas.base import BaseManifest
from schemas.composition import ResolvedSpec
from schemas.decision import Finding
from schemas.digests import Digest
from schemas.errors import Path, Problem
from validators.codes import CODES
from validators.errors import CouldNotCheckError

Site = tuple[str, int, int, str]
T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """One adapter of the spec with the base it was made for."""

    digest: Digest
    adapter: AdapterManifest
    base: BaseManifest


@dataclass(frozen=True)
class Context:
    """A spec and the manifests it names. An adapter named twice in the spec stands in `members` once."""

    spec: ResolvedSpec
    base: BaseManifest
    members: tuple[Member, ...]

    @cached_property
    def sites(self) -> dict[Site, list[FactorManifest]]:
        """The members' factors by the place where they act, places in order."""
        found: defaultdict[Site, list[FactorManifest]] = defaultdict(list)
        for member in self.members:
            for factor in member.adapter.factors:
                found[factor.site].append(factor)
        return dict(sorted(found.items()))

    def factors(self) -> Iterator[tuple[Digest, FactorManifest]]:
        """Every factor of every member with its adapter's digest."""
        for member in self.members:
            for factor in member.adapter.factors:
                yield member.digest, factor


def gather(
    spec: ResolvedSpec,
    base: BaseManifest,
    adapters: Mapping[Digest, AdapterManifest],
    bases: Mapping[Digest, BaseManifest],
) -> Context:
    """Put the manifests beside the spec; `bases` need not repeat the spec's own base.

    Raises:
        CouldNotCheckError: `MANIFEST_MISSING`.
    """
    known = {**bases, spec.base: base}
    members = []
    for digest in sorted({member.adapter for member in spec.members}):
        adapter = _known(adapters, digest, "adapter")
        members.append(Member(digest, adapter, _known(known, adapter.base, "base")))
    return Context(spec, base, tuple(members))


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
