"""Checking what is stored against what it should be: manifests, audit chain, blobs, tensors, recomputation."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from registry.db import Reader, audit, blobs, lineage, manifests, purges, tensors
from registry.db.rows import ManifestRow
from registry.db.verify import AuditFault, verify_audit
from registry.errors import ProblemError
from registry.service import reconvert, resolve
from registry.service.composer import Stored, placed
from registry.service.context import Context
from registry.service.decide import order_of
from registry.service.results import Fault, Verified
from registry.service.routers import tensors_of
from registry.storage import hash_file
from schemas.adapter import AdapterManifest
from schemas.base import TensorRef
from schemas.composition import AdmissionManifest, CompositionManifest, ResolvedSpec
from schemas.conversion import ConversionManifest
from schemas.digests import Digest, TensorHasher
from schemas.manifests import read_manifest
from schemas.router import RouterManifest

PAGE: Final = 500
SVD_TOLERANCE: Final = 1e-6
"""Relative Frobenius distance within which two runs of a method with singular vectors are the same delta."""


def verify(
    context: Context,
    ref: str | None = None,
    *,
    deep: bool = False,
    recompute: bool = False,
    expect_head: str | None = None,
    base_files: bool = False,
) -> Verified:
    """Check everything, or one manifest with all its ancestors.

    Manifests are re-hashed and the audit chain replayed; blobs are checked for presence and size, with `deep` re-hashed
    together with every tensor, and referenced base files are compared by size and modification time. `base_files`
    reads those files whole and re-hashes them, whatever their time says. `recompute` composes and converts again and
    compares the outputs. What was purged has no bytes to check.
    """
    context.require("admin")
    with context.database.reading() as reader:
        rows = list(_rows(reader, ref))
        broken = {row.digest: tuple(_manifest_faults(row)) for row in rows}
        faults = [fault for found in broken.values() for fault in found]
        if ref is None:
            faults += [_audit_fault(item) for item in verify_audit(reader, expect_head)]
        whole = [row for row in rows if not broken[row.digest]]
        gone = purges.purged(reader, (row.digest for row in whole))
        sound = [row for row in whole if row.digest not in gone]
        adapters = [
            manifests.load(reader, row.digest, AdapterManifest) for row in sound if row.kind == AdapterManifest.KIND
        ]
        named = _blobs(reader, adapters, whole=ref is None)
        faults += [fault for blob in named for fault in _blob_faults(context, reader, blob, deep=deep)]
        routers = [
            manifests.load(reader, row.digest, RouterManifest) for row in sound if row.kind == RouterManifest.KIND
        ]
        wanted = _tensors(adapters) | {ref.tensor: ref for router in routers for ref in tensors_of(router)}
        if deep:
            faults += _tensor_faults(context, reader, wanted, {fault.subject for fault in faults})
        if deep or base_files:
            bases = [row.digest for row in sound if row.kind == "base"]
            faults += [fault for base in bases for fault in _base_faults(reader, base, rehash=base_files)]
        if recompute:
            compositions = [row.digest for row in sound if row.kind == CompositionManifest.KIND]
            faults += [fault for digest in compositions for fault in _recompute(context, reader, digest)]
            conversions = [row.digest for row in sound if row.kind == ConversionManifest.KIND]
            faults += [fault for digest in conversions for fault in _reconvert(context, reader, digest)]
        head = audit.head(reader)
        return Verified(
            manifests=len(rows),
            blobs=len(named),
            tensors=len(wanted) if deep else 0,
            audit_events=head.sequence if head and isinstance(head.sequence, int) else 0,
            head=_text(head.hash) if head else None,
            deep=deep,
            faults=tuple(faults),
        )


def _rows(reader: Reader, ref: str | None) -> Iterator[ManifestRow]:
    if ref is None:
        after: str | None = None
        while True:
            page = manifests.page(reader, manifests.ManifestFilter(), after, PAGE)
            yield from page.items
            after = page.next
            if after is None:
                return
    for node in lineage.ancestors(reader, resolve.digest_of(reader, ref)).nodes:
        row = manifests.find(reader, node.digest)
        if row is not None:
            yield row


def _manifest_faults(row: ManifestRow) -> Iterator[Fault]:
    try:
        read_manifest(row.kind, row.data, row.digest)
    except ProblemError as error:
        yield from _faults(error, row.digest)


def _blobs(reader: Reader, adapters: list[AdapterManifest], *, whole: bool) -> list[Digest]:
    """Blobs to check: all that should be present, or those that hold the tensors of these adapters."""
    if not whole:
        located = tensors.locations(reader, _tensors(adapters))
        return sorted({place.blob for places in located.values() for place in places})
    found: list[Digest] = []
    after: str | None = None
    while True:
        page = blobs.presence_page(reader, after, PAGE)
        found += [row.blob for row in page.items]
        after = page.next
        if after is None:
            return found


def _blob_faults(context: Context, reader: Reader, blob: Digest, *, deep: bool) -> Iterator[Fault]:
    try:
        if deep:
            context.store.verify(blob)
            return
        size = context.store.size(blob)
    except ProblemError as error:
        yield from _faults(error, blob)
        return
    row = blobs.find(reader, blob)
    if row is not None and row.size != size:
        yield _fault("BLOB_SIZE_MISMATCH", blob, str(row.size), str(size), "Restore the blob from a backup.")


def _tensors(adapters: Iterable[AdapterManifest]) -> dict[Digest, TensorRef]:
    return {ref.tensor: ref for adapter in adapters for ref in resolve.tensors_of(adapter)}


def _tensor_faults(
    context: Context, reader: Reader, wanted: dict[Digest, TensorRef], damaged: set[str]
) -> Iterator[Fault]:
    """Re-hash every tensor where it lies; those in an already named blob are not blamed again."""
    located = tensors.locations(reader, wanted)
    for tensor, ref in wanted.items():
        places = [place for place in located.get(tensor, ()) if place.blob not in damaged]
        if not located.get(tensor):
            hint = "Add the adapter's directory again."
            yield _fault("TENSOR_BYTES_MISSING", tensor, "a blob that holds it", "none", hint)
        for place in places:
            try:
                data = context.store.read(place.blob, place.offset, place.length)
            except ProblemError as error:
                yield from _faults(error, tensor)
                continue
            hasher = TensorHasher(ref.dtype, ref.shape)
            hasher.update(data)
            if (observed := hasher.finish()) != tensor:
                hint = f"The location in {place.blob} is wrong; restore the database from a backup."
                yield _fault("TENSOR_DIGEST_MISMATCH", tensor, tensor, observed, hint)


def _base_faults(reader: Reader, base: Digest, *, rehash: bool) -> Iterator[Fault]:
    """Referenced base files: present and unchanged since they were hashed, by size and time or by their bytes."""
    for row in tensors.base_files(reader, base):
        path = Path(row.directory) / row.path
        try:
            now = path.stat()
        except OSError:
            hint = "Bring the directory back or add the base again from where it is now."
            yield _fault("BASE_BYTES_UNAVAILABLE", base, str(path), "no such file", hint)
            continue
        if rehash:
            yield from _rehashed(base, path, row.blob)
        elif (now.st_size, now.st_mtime_ns) != (row.size, row.mtime_ns):
            hint = "Add the base again: its digest tells whether the content changed."
            yield _fault("BASE_BYTES_CHANGED", base, f"{path} as hashed", "another size or time", hint)


def _rehashed(base: Digest, path: Path, blob: Digest) -> Iterator[Fault]:
    try:
        observed = hash_file(path).digest
    except ProblemError as error:
        yield from _faults(error, base)
        return
    if observed != blob:
        hint = f"Bring back the file of {blob}, or add what is there now as another base."
        yield _fault("BASE_BYTES_CHANGED", base, f"{path} as {blob}", observed, hint)


def _recompute(context: Context, reader: Reader, digest: Digest) -> Iterator[Fault]:
    """Compose again: the same bytes, or for singular vectors, which builds round differently, the same deltas."""
    composition = manifests.load(reader, digest, CompositionManifest)
    admission = manifests.load(reader, composition.admission, AdmissionManifest)
    output = manifests.load(reader, composition.output, AdapterManifest)
    assert isinstance(admission.spec, ResolvedSpec), "a composition was admitted as one"
    try:
        with tempfile.TemporaryDirectory(prefix="registry-verify-") as folder:
            composed = context.composer.compose(order_of(context, admission.spec), Path(folder))
            if composed.output.digest == composition.output:
                return
            stored = Stored(output, resolve.extents(context, reader, resolve.tensors_of(output)))
            far = context.composer.difference(stored, placed(composed))
    except ProblemError as error:
        yield from _faults(error, digest)
        return
    if composition.choices.svd is None or far > SVD_TOLERANCE:
        hint = "Compare torch build and inputs with the run record; the stored output is not what this spec gives here."
        observed = f"{composed.output.digest}, deltas {far:.3g} apart"
        yield _fault("RECOMPUTE_DIFFERS", digest, composition.output, observed, hint)


def _reconvert(context: Context, reader: Reader, digest: Digest) -> Iterator[Fault]:
    conversion = manifests.load(reader, digest, ConversionManifest)
    try:
        for observed in reconvert.differs(context, reader, conversion, SVD_TOLERANCE):
            hint = "The stored output is not what this conversion gives here; convert again under another name."
            yield _fault("RECOMPUTE_DIFFERS", digest, conversion.output, observed, hint)
    except ProblemError as error:
        yield from _faults(error, digest)


def _audit_fault(item: AuditFault) -> Fault:
    if item.code == "HEAD_MISSING":
        hint = "Give the whole head that `registry verify` printed; if it is, restore the database from a backup."
        return _fault(item.code, "audit head", item.expected, item.observed, hint)
    where = "this row" if item.change is None else f"change {item.change}"
    hint = f"Compare {where} with a backup: it was not written by the registry."
    return _fault(item.code, f"{item.table} {item.key}", item.expected, item.observed, hint)


def _faults(error: ProblemError, subject: str) -> Iterator[Fault]:
    for problem in error.problems:
        yield _fault(problem.code, subject, problem.expected, problem.observed, problem.hint)


def _fault(code: str, subject: str, expected: str, observed: str, hint: str) -> Fault:
    told = {"subject": subject, "expected": expected, "observed": observed, "hint": hint}
    return Fault(code=code, **{key: _text(cell) for key, cell in told.items()})


def _text(cell: object) -> str:
    """A cell to be told: a damaged one may hold bytes, or text that no encoding can write."""
    return str(cell).encode("utf-8", "backslashreplace").decode()
