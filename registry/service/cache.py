"""The cache identity of a generation: what a prefix key owes to the registry, and what a server adds (C 0x05Q)."""

from __future__ import annotations

from registry.db import Reader, channels, manifests, refs
from registry.errors import Problem, UsageProblemError
from registry.service import resolve
from registry.service.context import Context
from registry.service.results import CacheIdentity
from schemas.canonical import canonical_bytes
from schemas.composition import CompositionManifest
from schemas.conversion import ConversionManifest
from schemas.digests import Digest, manifest_digest
from schemas.names import ChannelRef, check_name
from schemas.publication import REQUEST_FIELDS, KvIdentity
from schemas.release import CandidateManifest
from schemas.router import RouterManifest


def kv_identity(reader: Reader, channel: str, number: int, artifacts: tuple[Digest, ...]) -> KvIdentity:
    """Every adapter, merge and release digest of the tuple is a weight transform of the one base below it.

    Raises:
        UsageProblemError: `BASES_DIFFER`.
    """
    bases = {adapter.base for digest in artifacts for adapter in resolve.adapters_of(reader, digest)}
    if len(bases) != 1:
        raise UsageProblemError(_several(bases))
    routers = [router for digest in artifacts for router in [resolve.router_of(reader, digest)] if router is not None]
    one = routers[0] if len(routers) == 1 else None
    threshold = None if one is None else one.selection.threshold
    return KvIdentity(
        base=bases.pop(),
        weight_transforms=tuple(part for digest in artifacts for part in _transforms(reader, digest)),
        router_revision=_joined("routers", [router.digest for router in routers]),
        route_policy=_joined("policies", [_policy(router) for router in routers]),
        threshold="none" if threshold is None else threshold,
        comparator="none" if one is None else one.selection.comparator,
        channel=channel,
        generation=number,
    )


def show(context: Context, channel: str, generation: int | None = None) -> CacheIdentity:
    """The cache identity of a generation, by default the live one, with the fields a server adds to it."""
    check_name(channel)
    with context.database.reading() as reader:
        row = channels.at_head(reader, channel) if generation is None else channels.at(reader, channel, generation)
        artifacts = refs.artifacts(reader, ChannelRef(channel, row.number))
        found = kv_identity(reader, channel, row.number, artifacts)
    return CacheIdentity(
        channel=channel,
        generation=row.number,
        kv_identity=found.digest,
        static=found.document(),
        request_fields=REQUEST_FIELDS,
    )


def _transforms(reader: Reader, digest: Digest) -> tuple[Digest, ...]:
    manifest = manifests.get(reader, digest)
    if isinstance(manifest, CompositionManifest | ConversionManifest):
        return (digest, manifest.output)
    if isinstance(manifest, CandidateManifest):
        return (digest, *dict.fromkeys(manifest.adapters))
    return (digest,)


def _policy(router: RouterManifest) -> Digest:
    return manifest_digest("route_policy", canonical_bytes(router.policy))


def _joined(kind: str, digests: list[Digest]) -> Digest | str:
    """One digest as it is; several as one; none as none."""
    if len(digests) < 2:
        return digests[0] if digests else "none"
    return manifest_digest(kind, canonical_bytes([*digests]))


def _several(bases: set[Digest]) -> Problem:
    return Problem(
        code="BASES_DIFFER",
        expected="one base",
        observed=", ".join(sorted(bases)),
        hint="Publish artifacts of different bases on channels of their own.",
    )
