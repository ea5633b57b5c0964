"""Manifests: exact bytes in, exact bytes out, and the columns to search by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from sqlalchemy import Select, bindparam, exists, select
from sqlalchemy.orm import aliased

from registry.db import paging
from registry.db.edges import adapter_edges, edges_of
from registry.db.paging import Page
from registry.db.prepared import Cell, Chosen, Prepared, Values
from registry.db.problems import found
from registry.db.rows import EdgeRow, LabelRow, ManifestRow
from registry.db.rows.core import as_bytes
from registry.db.session import Change, Reader
from registry.errors import Problem, UsageProblemError
from schemas.adapter import AdapterManifest
from schemas.composition import AdmissionManifest, CompositionManifest
from schemas.conversion import ConversionManifest
from schemas.digests import Digest
from schemas.linked import LinkedManifest
from schemas.manifests import read_manifest
from schemas.model import Manifest

M = TypeVar("M", bound=Manifest)
_ROW: Final = select(ManifestRow).where(ManifestRow.digest == bindparam("digest"))
_ABSENT: Final = dict.fromkeys(("base", "family", "method", "outcome"))
_CONTENT: Final = Prepared(select(ManifestRow.kind, ManifestRow.data).where(ManifestRow.digest == bindparam("digest")))
_KIND: Final = Prepared(select(ManifestRow.kind).where(ManifestRow.digest == bindparam("digest")))
_BASES: Final = Chosen(select(EdgeRow.parent).where(EdgeRow.role == "base").distinct(), EdgeRow.child)
_BETWEEN: Final = Prepared(
    select(ManifestRow.digest, ManifestRow.kind)
    .where(ManifestRow.digest >= bindparam("first"), ManifestRow.digest < bindparam("end"))
    .order_by(ManifestRow.digest)
    .limit(bindparam("most"))
)


@dataclass(frozen=True, kw_only=True)
class ManifestFilter:
    """What a list shows; None is no restriction. `labels` are keys and the values that all of them must have now."""

    kind: str | None = None
    base: Digest | None = None
    family: str | None = None
    method: str | None = None
    outcome: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Stored:
    """What the database keeps of a manifest: its bytes, the columns to search by, and its edges."""

    digest: Digest
    kind: str
    data: bytes
    columns: Values
    edges: tuple[Values, ...]

    def row(self, created: str) -> Values:
        """The row of the manifest."""
        always: Values = {"digest": self.digest, "kind": self.kind, "data": self.data, "created": created}
        return {**_ABSENT, **self.columns, **always}


def put(change: Change, manifest: Manifest) -> bool:
    """Store a manifest and its edges; False when it was there. Everything it names must be stored before.

    (An output adapter is stored before the composition that made it.)
    """
    return bool(put_all(change, [manifest]))


def put_all(change: Change, given: Iterable[Manifest]) -> frozenset[Digest]:
    """Store manifests that do not name each other, with their edges; those that were not there."""
    return put_stored(change, map(_stored, given))


def put_stored(change: Change, given: Iterable[Stored]) -> frozenset[Digest]:
    """The same of manifests whose rows are known already."""
    by_digest = {item.digest: item for item in given}
    rows = [item.row(change.now) for item in by_digest.values()]
    new = [str(row["digest"]) for row in change.ensure(ManifestRow, rows)]
    change.write(EdgeRow, [edge for digest in new for edge in by_digest[digest].edges])
    return frozenset(new)


def adapter(digest: Digest, data: bytes, base: Digest, family: str) -> Stored:
    """The rows of an adapter that was read elsewhere: its digest, canonical bytes, base and family."""
    return Stored(digest, AdapterManifest.KIND, data, {"base": base, "family": family}, adapter_edges(digest, base))


def find(reader: Reader, digest: Digest) -> ManifestRow | None:
    """The row of a manifest."""
    return reader.one(_ROW, digest=digest)


def kind_of(reader: Reader, digest: Digest) -> str | None:
    """The kind of a manifest, without its bytes, which may be many."""
    row = _KIND.first(reader.connection, digest=digest)
    return None if row is None else row[0]


def known(reader: Reader, digest: Digest) -> bool:
    """Whether a manifest is stored."""
    return bool(all_known(reader, [digest]))


def all_known(reader: Reader, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Which of these manifests are stored."""
    return reader.known(ManifestRow, digests)


def bases_of(reader: Reader, digests: Iterable[Digest]) -> frozenset[Digest]:
    """The bases of stored adapters, without reading these: in their rows it stands behind the bytes."""
    return frozenset(row[0] for row in _BASES.rows(reader.connection, digests))


def get(reader: Reader, digest: Digest) -> Manifest:
    """A manifest by digest, its bytes hashed again.

    Raises:
        NotFoundError: `MANIFEST_UNKNOWN`.
        DigestMismatchError: `MANIFEST_DIGEST_MISMATCH`.
    """
    hint = "List what is registered with `registry ls`."
    row = found(_CONTENT.first(reader.connection, digest=digest), "MANIFEST_UNKNOWN", f"a manifest {digest}", hint)
    return _read(row[0], as_bytes(row[1]), digest)


def _read(kind: str, data: bytes, digest: Digest) -> Manifest:
    # an adapter of a large model takes a megabyte, and many are read for one question
    return _read_once(kind, data, digest) if kind != AdapterManifest.KIND else read_manifest(kind, data, digest)


@lru_cache(maxsize=64)
def _read_once(kind: str, data: bytes, digest: Digest) -> Manifest:
    """Read once what is asked for again and again, such as a base; other bytes are another key."""
    return read_manifest(kind, data, digest)


def load(reader: Reader, digest: Digest, model: type[M]) -> M:
    """A manifest of a known kind.

    Raises:
        UsageProblemError: `KIND_UNEXPECTED` when it is of another kind; and the errors of `get`.
    """
    manifest = get(reader, digest)
    if not isinstance(manifest, model):
        raise UsageProblemError(
            Problem(
                code="KIND_UNEXPECTED",
                expected=f"the digest of a manifest of kind {model.KIND}",
                observed=f"{digest} of kind {manifest.KIND}",
                hint=f"Name something of kind {model.KIND}.",
            )
        )
    return manifest


def candidates(reader: Reader, prefix: str, limit: int = 20) -> tuple[tuple[Digest, str], ...]:
    """Digest and kind of manifests whose digest begins with `prefix` (`blake3:` and some digits), by digest."""
    # "g" sorts right after the hexadecimal digits
    rows = _BETWEEN.all(reader.connection, first=prefix, end=prefix + "g", most=limit)
    return tuple((row[0], row[1]) for row in rows)


def page(reader: Reader, chosen: ManifestFilter, after: str | None = None, limit: int = 50) -> Page[ManifestRow]:
    """One page of manifests, newest first."""
    statement = select(ManifestRow)
    for column in ("kind", "base", "family", "method", "outcome"):
        value = getattr(chosen, column)
        if value is not None:
            statement = statement.where(getattr(ManifestRow, column) == value)
    for key, value in chosen.labels:
        statement = _labelled(statement, key, value)
    return paging.page(reader, statement, (ManifestRow.created, ManifestRow.digest), after, limit, newest_first=True)


def _labelled(statement: Select[ManifestRow], key: str, value: str) -> Select[ManifestRow]:
    newer = aliased(LabelRow)
    replaced = exists().where(
        newer.subject == LabelRow.subject, newer.key == LabelRow.key, newer.sequence > LabelRow.sequence
    )
    current = select(LabelRow.subject).where(LabelRow.key == key, LabelRow.value == value, ~replaced)
    return statement.where(ManifestRow.digest.in_(current))


def _stored(manifest: Manifest) -> Stored:
    digest, data = manifest.digest, manifest.canonical()
    if isinstance(manifest, AdapterManifest):
        return adapter(digest, data, manifest.base, manifest.family)
    return Stored(digest, manifest.KIND, data, _columns(manifest), edges_of(manifest, digest))


def _columns(manifest: Manifest) -> dict[str, Cell]:
    if isinstance(manifest, AdmissionManifest):
        spec = manifest.spec
        return {"base": spec.base, "method": getattr(spec, "method", None), "outcome": manifest.decision.outcome}
    if isinstance(manifest, CompositionManifest):
        return {"base": manifest.base, "method": manifest.method}
    if isinstance(manifest, ConversionManifest):
        return {"base": manifest.base, "method": manifest.rule}
    if isinstance(manifest, LinkedManifest):
        return {"base": next((digest for role, digest in manifest.links() if role == "base"), None)}
    return {}
