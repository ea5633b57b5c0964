"""Which manifests a manifest was made from: the edges its own fields give."""

from __future__ import annotations

from collections import Counter

from registry.db.prepared import Values
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.composition import AdmissionManifest, CompositionManifest, ResolvedMember, ResolvedSpec
from schemas.conversion import ConversionManifest
from schemas.digests import Digest
from schemas.linked import LinkedManifest
from schemas.model import Manifest
from schemas.publication import PublicationManifest
from schemas.release import ResolvedRelease


def edges_of(manifest: Manifest, digest: Digest) -> tuple[Values, ...]:
    """The edges of one manifest, whose digest this is.

    A composition or conversion names its output, yet the output comes from it, so that edge points from the output to
    it. A publication's previous generation is history, not ancestry.
    """
    if isinstance(manifest, AdapterManifest):
        return adapter_edges(digest, manifest.base)
    if isinstance(manifest, AdmissionManifest):
        return _admission(digest, manifest.spec)
    if isinstance(manifest, CompositionManifest):
        return (
            _edge(digest, manifest.admission, "admission"),
            _edge(digest, manifest.base, "base"),
            *_members(digest, manifest.members),
            _edge(manifest.output, digest, "output"),
        )
    if isinstance(manifest, BaseManifest):
        return _contracts(digest, manifest)
    if isinstance(manifest, LinkedManifest):
        return _links(digest, manifest)
    if isinstance(manifest, ConversionManifest):
        return _conversion(digest, manifest)
    if isinstance(manifest, PublicationManifest):
        return tuple(_edge(digest, artifact, "artifact", i) for i, artifact in enumerate(manifest.artifacts))
    return ()


def adapter_edges(digest: Digest, base: Digest) -> tuple[Values, ...]:
    """The edges of an adapter on a base."""
    return (_edge(digest, base, "base"),)


def _admission(digest: Digest, spec: ResolvedSpec | ResolvedRelease) -> tuple[Values, ...]:
    base = _edge(digest, spec.base, "base")
    if isinstance(spec, ResolvedSpec):
        return (base, *_members(digest, spec.members))
    named = (("router", spec.router), ("state", spec.state))
    return (base, *(_edge(digest, parent, role) for role, parent in named if parent != "none"))


def _contracts(digest: Digest, base: BaseManifest) -> tuple[Values, ...]:
    contracts = () if isinstance(base.compute_contracts, str) else base.compute_contracts
    return tuple(_edge(digest, contract.digest, "contract", i) for i, contract in enumerate(contracts))


def _links(digest: Digest, manifest: LinkedManifest) -> tuple[Values, ...]:
    positions: Counter[str] = Counter()
    edges = []
    for role, parent in manifest.links():
        edges.append(_edge(digest, parent, role, positions[role]))
        positions[role] += 1
    return tuple(edges)


def _conversion(digest: Digest, manifest: ConversionManifest) -> tuple[Values, ...]:
    initial = () if manifest.initial is None else (_edge(digest, manifest.initial, "initial"),)
    return (
        _edge(digest, manifest.parent, "parent"),
        *initial,
        _edge(digest, manifest.base, "base"),
        _edge(manifest.output, digest, "output"),
    )


def _members(child: Digest, members: tuple[ResolvedMember, ...]) -> tuple[Values, ...]:
    return tuple(_edge(child, member.adapter, "member", i) for i, member in enumerate(members))


def _edge(child: Digest, parent: Digest, role: str, position: int = 0) -> Values:
    return {"child": child, "parent": parent, "role": role, "position": position}
