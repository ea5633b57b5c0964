"""Registering a router: its document, its tensors, and the pool it chooses from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from registry.db import Change, Reader, blobs, files, manifests, tensors
from registry.errors import Problem, RefusedError
from registry.formats.scan import ScannedFile, ScannedTensor
from registry.formats.tensors import by_name, read_tensors
from registry.service import documents, resolve
from registry.service.composer import RouteOrder
from registry.service.context import Context
from registry.service.results import Added
from schemas.adapter import AdapterManifest
from schemas.base import TensorRef
from schemas.canonical import JsonObject, JsonValue
from schemas.decision import Finding
from schemas.digests import Digest
from schemas.router import RouterManifest
from validators.routes.router import judge_router

REFERENCES: Final = frozenset({"base", "adapter"})


def add_router(context: Context, document: JsonObject, name: str, file: Path | None) -> Added:
    """Register a router over registered adapters.

    `tensors` in the document gives each tensor of `file` its role; a candidate of the pool is a reference, or an
    adapter with one of its experts. What the file holds beside must belong to the pool, so that nothing is lost
    unseen.

    Raises:
        RefusedError: a tensor is missing or belongs to nobody, or a rule refuses the router.
    """
    found = documents.resolved(context, _written_out(document), REFERENCES)
    if file is None:
        return documents.add_document(context, found, name, RouterManifest, _judge)
    with context.audited("router.add", {"name": name}):
        scanned = read_tensors(file)
        found["tensors"] = _with_refs(found.get("tensors"), by_name(scanned))
        with context.database.reading() as reader:
            _refuse_strangers(scanned, found, _pool(reader, found))
    context.store.put_file(file, expect=scanned.file.digests.digest)

    def keep(change: Change, manifest: RouterManifest) -> None:
        blobs.put(change, [scanned.file.digests])
        blobs.mark_present(change, [scanned.file.digests.digest])
        files.put(change, manifest.digest, [(file.name, scanned.file.digests.digest)])
        tensors.put(change, _locations(scanned, manifest))

    return documents.add_document(context, found, name, RouterManifest, _judge, keep)


def tensors_of(router: RouterManifest) -> tuple[TensorRef, ...]:
    """Every tensor of a router."""
    return tuple(item.value for item in router.tensors.values())


def pool_of(reader: Reader, router: RouterManifest) -> dict[Digest, AdapterManifest]:
    """The adapters of a router's pool by digest."""
    return {entry.adapter: manifests.load(reader, entry.adapter, AdapterManifest) for entry in router.pool}


def order_of(context: Context, reader: Reader, router: RouterManifest) -> RouteOrder:
    """What the additivity witness needs: the router, its pool, and where their tensors lie."""
    pool = pool_of(reader, router)
    wanted = [ref for adapter in pool.values() for ref in resolve.tensors_of(adapter)]
    return RouteOrder(router, pool, resolve.extents(context, reader, [*wanted, *tensors_of(router)]))


def _judge(reader: Reader, router: RouterManifest) -> Iterable[Finding]:
    return list(judge_router(router, pool_of(reader, router)))


def _written_out(document: JsonObject) -> JsonObject:
    """The document with candidates that are bare references as entries."""
    pool = document.get("pool")
    if not isinstance(pool, list):
        return document
    entries: list[JsonValue] = [{"adapter": item} if isinstance(item, str) else item for item in pool]
    return document | {"pool": entries}


def _with_refs(roles: JsonValue, known: Mapping[str, ScannedTensor]) -> JsonObject:
    """Each named tensor by content, with its role."""
    named = roles if isinstance(roles, dict) else {}
    missing = sorted(named.keys() - known.keys())
    if missing or not named:
        raise RefusedError(*(_missing(name, known) for name in missing or ["tensors"]))
    return {name: {"role": role, "value": known[name].ref.document()} for name, role in named.items()}


def _refuse_strangers(scanned: ScannedFile, document: JsonObject, pool: frozenset[Digest]) -> None:
    """A tensor nobody names would be stored and mean nothing."""
    named = document["tensors"]
    assert isinstance(named, dict)
    strangers = [item for item in scanned.tensors if item.entry.name not in named and item.digest not in pool]
    if strangers:
        raise RefusedError(*(_stranger(item) for item in strangers[:20]))


def _pool(reader: Reader, document: JsonObject) -> frozenset[Digest]:
    """Digests of all tensors of the pool's adapters."""
    entries = document.get("pool")
    digests = {
        str(entry["adapter"]) for entry in (entries if isinstance(entries, list) else []) if isinstance(entry, dict)
    }
    adapters = [manifests.load(reader, digest, AdapterManifest) for digest in sorted(digests)]
    return frozenset(ref.tensor for adapter in adapters for ref in resolve.tensors_of(adapter))


def _locations(scanned: ScannedFile, router: RouterManifest) -> list[tensors.Location]:
    wanted = {ref.tensor for ref in tensors_of(router)}
    places = [item.location(scanned.file) for item in scanned.tensors if item.digest in wanted]
    return [
        tensors.Location(place.tensor, place.file, place.offset, place.length, place.dtype, place.shape)
        for place in places
    ]


def _missing(name: str, known: Mapping[str, ScannedTensor]) -> Problem:
    return Problem(
        code="ROUTER_TENSOR_MISSING",
        path=("tensors", name),
        expected="a tensor of the file, with role gate or feature",
        observed=", ".join(sorted(known)[:8]) or "no tensors",
        hint="Name each tensor of the router as the file does.",
    )


def _stranger(item: ScannedTensor) -> Problem:
    return Problem(
        code="ROUTER_TENSOR_UNNAMED",
        path=("tensors", item.entry.name),
        expected="a tensor the document names, or one of the pool's adapters",
        observed=item.digest,
        hint="Give it a role in the document, or leave it out of the file.",
    )
