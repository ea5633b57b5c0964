"""From what people type to manifests and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from registry.db import Reader, manifests, names, refs, statements, tensors
from registry.errors import NotFoundError, Problem, RefusedError, UsageProblemError
from registry.service.composer import Extent
from registry.service.context import Context
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest, TensorRef
from schemas.composition import CompositionManifest
from schemas.conversion import ConversionManifest
from schemas.digests import Digest
from schemas.names import DigestRef, parse_ref
from schemas.release import CandidateManifest
from schemas.router import RouterManifest


def digest_of(reader: Reader, ref: str) -> Digest:
    """The digest a reference means."""
    return refs.resolve(reader, parse_ref(ref))


def asked(reader: Reader, ref: str) -> Digest:
    """The same for who looks it up right away: a whole digest may be one of nothing."""
    parsed = parse_ref(ref)
    return parsed.digest if isinstance(parsed, DigestRef) and parsed.whole else refs.resolve(reader, parsed)


def names_of(reader: Reader, digest: Digest) -> tuple[str, ...]:
    """Every `NAME@VERSION` of a digest."""
    return tuple(f"{row.name}@{row.version}" for row in names.of(reader, digest))


def bare_names_of(reader: Reader, digest: Digest) -> frozenset[str]:
    """Every name that has the digest as a version."""
    return frozenset(row.name for row in names.of(reader, digest))


def names_of_all(reader: Reader, digests: Iterable[Digest]) -> dict[Digest, tuple[str, ...]]:
    """Every `NAME@VERSION` of many digests; one without a name is absent."""
    return {
        digest: tuple(f"{name}@{version}" for name, version in versions)
        for digest, versions in names.of_all(reader, digests).items()
    }


def base_of(reader: Reader, ref: str) -> BaseManifest:
    """The base manifest a reference means."""
    return manifests.load(reader, digest_of(reader, ref), BaseManifest)


def adapter_of(reader: Reader, digest: Digest) -> AdapterManifest:
    """The adapter of a digest: itself, or the output of a composition or conversion.

    Raises:
        UsageProblemError: `NOT_AN_ADAPTER`.
    """
    manifest = manifests.get(reader, digest)
    if isinstance(manifest, ConversionManifest) and manifest.rule == "dense":
        raise UsageProblemError(_no_adapter(digest, "the record of a dense release"))
    if isinstance(manifest, CompositionManifest | ConversionManifest):
        return manifests.load(reader, manifest.output, AdapterManifest)
    if isinstance(manifest, AdapterManifest):
        return manifest
    raise UsageProblemError(_no_adapter(digest, f"of kind {manifest.KIND}"))


def adapter_digest(reader: Reader, digest: Digest) -> Digest:
    """The digest of `adapter_of`, without reading a large adapter."""
    if manifests.kind_of(reader, digest) == AdapterManifest.KIND:
        return digest
    return adapter_of(reader, digest).digest


def _no_adapter(digest: Digest, what: str) -> Problem:
    return Problem(
        code="NOT_AN_ADAPTER",
        expected="an adapter, a composition or a conversion",
        observed=f"{digest}, {what}",
        hint="Name an adapter; `registry ls adapters` lists them.",
    )


def adapters_of(reader: Reader, digest: Digest) -> tuple[AdapterManifest, ...]:
    """The adapters something published consists of: several for the release state of a lane.

    Raises:
        UsageProblemError: `NOT_AN_ADAPTER`.
    """
    manifest = manifests.get(reader, digest)
    if isinstance(manifest, CandidateManifest):
        return tuple(manifests.load(reader, one, AdapterManifest) for one in dict.fromkeys(manifest.adapters))
    return (adapter_of(reader, digest),)


def parts_of(reader: Reader, digest: Digest) -> tuple[TensorRef, ...]:
    """Every tensor of something published: of its adapters, and of its router."""
    factors = [ref for adapter in adapters_of(reader, digest) for ref in tensors_of(adapter)]
    router = router_of(reader, digest)
    return (*factors, *(item.value for item in router.tensors.values())) if router else tuple(factors)


def router_of(reader: Reader, digest: Digest) -> RouterManifest | None:
    """The router of a release state that has one."""
    manifest = manifests.get(reader, digest)
    if not isinstance(manifest, CandidateManifest) or manifest.router == "none":
        return None
    return manifests.load(reader, manifest.router, RouterManifest)


def refuse_yanked(reader: Reader, digests: Iterable[Digest]) -> None:
    """Refuse what was yanked: it stays readable, but nothing new is built on it."""
    yanked = sorted(statements.yanked(reader, digests))
    if yanked:
        raise RefusedError(
            *(
                Problem(
                    code="YANKED",
                    path=(digest,),
                    expected="an artifact that is not yanked",
                    observed=digest,
                    hint="Use another version; `registry show` tells the reason of the yank.",
                )
                for digest in yanked
            )
        )


def tensors_of(adapter: AdapterManifest) -> tuple[TensorRef, ...]:
    """Every tensor of an adapter: factors with their extras, then full replacements."""
    factors = [ref for factor in adapter.factors for ref in (factor.a, factor.b, *factor.extra.values())]
    return (*factors, *(replacement.value for replacement in adapter.full_replacements))


def places(context: Context, reader: Reader, wanted: Iterable[TensorRef]) -> dict[Digest, tensors.Location]:
    """For each tensor one location whose blob the store holds.

    Raises:
        NotFoundError: `TENSOR_BYTES_MISSING`, one problem for each tensor without one.
    """
    digests = {ref.tensor for ref in wanted}
    located = tensors.locations(reader, digests)
    here = _blobs_here(context, located)
    held = {
        tensor: place
        for tensor, known in located.items()
        for place in [next((place for place in known if place.blob in here), None)]
        if place is not None
    }
    missing = sorted(digests - held.keys())
    if missing:
        raise NotFoundError(*(_missing(tensor) for tensor in missing))
    return held


def all_held(context: Context, reader: Reader, wanted: Iterable[TensorRef]) -> bool:
    """Whether the store holds the bytes of every tensor."""
    return all_here(context, reader, {ref.tensor for ref in wanted})


def all_here(context: Context, reader: Reader, digests: Set[Digest]) -> bool:
    """The same of tensors by digest."""
    located = tensors.locations(reader, digests)
    here = _blobs_here(context, located)
    return all(any(place.blob in here for place in located.get(tensor, ())) for tensor in digests)


def extents(context: Context, reader: Reader, wanted: Iterable[TensorRef]) -> dict[Digest, Extent]:
    """Where the bytes of tensors lie on this machine."""
    held = places(context, reader, wanted)
    files = {blob: context.store.local_path(blob) for blob in {place.blob for place in held.values()}}
    return {tensor: Extent(files[place.blob], place.offset, place.length) for tensor, place in held.items()}


def blobs_of(context: Context, reader: Reader, wanted: Iterable[TensorRef]) -> frozenset[Digest]:
    """The blobs that hold these tensors."""
    return frozenset(place.blob for place in places(context, reader, wanted).values())


def _blobs_here(context: Context, located: Mapping[Digest, Iterable[tensors.Location]]) -> frozenset[Digest]:
    """Which of the named blobs the store holds; each is asked for once, however many tensors lie in it."""
    blobs = {place.blob for known in located.values() for place in known}
    return frozenset(blob for blob in blobs if context.store.has(blob))


def _missing(tensor: Digest) -> Problem:
    return Problem(
        code="TENSOR_BYTES_MISSING",
        path=(tensor,),
        expected="a blob in the store that holds this tensor",
        observed="none",
        hint="Restore the store from a backup or add the adapter's directory again.",
    )
