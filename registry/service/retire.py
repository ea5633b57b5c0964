"""Removing bytes: a purge on purpose, garbage collection of what nothing names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from registry.db import Change, blobs, files, leases, lineage, manifests, purges, tensors
from registry.db import uploads as claims
from registry.errors import ConflictError, Problem
from registry.service import once, resolve, upkeep, uploads
from registry.service.context import Context
from registry.service.results import Collected, Purged
from registry.storage import BlobEntry
from schemas.adapter import AdapterManifest
from schemas.digests import Digest

BATCH: Final = 64
"""Blobs that are deleted in one change, for which every other change waits."""


def purge(context: Context, ref: str, reason: str) -> Purged:
    """Remove the bytes of a manifest and leave a tombstone; its versions are burned, its digest is never taken again.

    The tombstone is committed first: a crash after it leaves bytes that `gc` removes.

    Raises:
        ConflictError: `STILL_LIVE` while a channel serves it or something made of it, `STILL_LEASED` while a replica
            holds an older generation that does.
    """

    def work(change: Change) -> tuple[Digest, frozenset[Digest]]:
        digest = resolve.digest_of(change, ref)
        context.require("admin", *sorted(resolve.bare_names_of(change, digest)))
        live = lineage.live(change, digest)
        if live:
            raise ConflictError(_still_live(digest, [f"{row.channel}@g{row.number}" for row in live]))
        _refuse_leased(change, digest)
        purges.put(change, digest, reason)
        change.note(digest, {"reason": reason})
        return digest, _blobs_of(change, digest)

    digest, named = context.database.change("manifest.purge", context.principal, work)
    removed = _remove_unreferenced(context, named)
    return Purged(digest=digest, reason=reason, removed=tuple(sorted(removed)))


def gc(context: Context, grace_s: float) -> Collected:
    """Remove blobs that nothing names and staging files that nobody writes, when both are older than the grace.

    Putting a blob again makes it young again, so what a running registration just stored is kept, and so is, whatever
    the grace, what a running upload brings or one that ended less than a day ago brought.
    """
    context.require("admin")
    newest = datetime.now(UTC) - timedelta(seconds=grace_s)
    removed: list[Digest] = []
    size = 0
    old = (entry for entry in context.store.entries() if entry.modified <= newest)
    for batch in _batches(old):
        sizes = {entry.digest: entry.size for entry in batch}
        gone = _remove_unreferenced(context, sizes, newest)
        removed += sorted(gone)
        size += sum(sizes[digest] for digest in gone)
    staging = context.store.sweep_staging(grace_s) + uploads.sweep(context, grace_s)
    once.sweep(context)
    upkeep.messages(context)
    return Collected(removed=tuple(removed), bytes=size, staging=staging)


def _remove_unreferenced(
    context: Context, digests: Iterable[Digest], newest: datetime | None = None
) -> frozenset[Digest]:
    """Delete those that no unpurged manifest needs and that were not put after `newest`.

    The registry forgets them in one transaction and deletes in another, which looks once more who needs them and how
    old they are: whenever it is cut off, no row promises bytes that are gone, and what is being added again is kept.
    """
    wanted = frozenset(digests)

    def forget(change: Change) -> frozenset[Digest]:
        unneeded = wanted - blobs.referenced(change, wanted)
        if newest is not None:
            unneeded -= claims.claimed(change, unneeded)
        for digest in unneeded:
            blobs.mark_absent(change, digest)
        return unneeded

    forgotten = context.database.change("blob.collect", context.principal, forget)

    def remove(change: Change) -> frozenset[Digest]:
        unneeded = forgotten - blobs.referenced(change, forgotten)
        if newest is not None:
            unneeded -= claims.claimed(change, unneeded)
        gone = frozenset(digest for digest in unneeded if not _young(context, digest, newest))
        for digest in gone:
            context.store.delete(digest)
        return gone

    return context.database.change("blob.collect", context.principal, remove)


def _young(context: Context, digest: Digest, newest: datetime | None) -> bool:
    return newest is not None and context.store.has(digest) and context.store.modified(digest) > newest


def _blobs_of(change: Change, digest: Digest) -> frozenset[Digest]:
    """Blobs of the packagings of a manifest and of the tensors it names."""
    named = {entry.blob for packaging in files.packagings(change, digest) for entry in packaging.files}
    manifest = manifests.get(change, digest)
    if isinstance(manifest, AdapterManifest):
        located = tensors.locations(change, {ref.tensor for ref in resolve.tensors_of(manifest)})
        named |= {place.blob for places in located.values() for place in places}
    return frozenset(named)


def _refuse_leased(change: Change, digest: Digest) -> None:
    """A replica may be serving it, or something made of it, from a generation that is no longer live."""
    reached = [node.digest for node in lineage.descendants(change, digest).nodes]
    held = leases.serving(change, reached)
    if held:
        raise ConflictError(
            Problem(
                code="STILL_LEASED",
                path=(digest,),
                expected="no lease on a generation with it or something made of it",
                observed=", ".join(sorted(f"{row.channel}@g{row.number} by {row.holder}" for row in held)[:8]),
                hint="Wait until these replicas release their leases; `registry lease ls` shows them.",
            )
        )


def _still_live(digest: Digest, channels: list[str]) -> Problem:
    return Problem(
        code="STILL_LIVE",
        path=(digest,),
        expected="no live channel that serves it or something made of it",
        observed=", ".join(channels),
        hint="Publish something else on these channels first.",
    )


def _batches(entries: Iterable[BlobEntry]) -> Iterator[list[BlobEntry]]:
    rest = iter(entries)
    while batch := list(islice(rest, BATCH)):
        yield batch
