"""Packagings: which files a manifest came in. Another set of files never renames it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from sqlalchemy import bindparam, select

from registry.db.prepared import Prepared, Values
from registry.db.rows import BlobRow, FileRow
from registry.db.session import Change, Reader
from schemas.canonical import canonical_bytes
from schemas.digests import Digest, Sha256, manifest_digest


@dataclass(frozen=True)
class FileEntry:
    """One file: where it stood in the directory, and its content."""

    path: str
    blob: Digest
    sha256: Sha256
    size: int


@dataclass(frozen=True)
class Packaging:
    """One set of files, by path."""

    digest: Digest
    created: str
    files: tuple[FileEntry, ...]


_PACKAGINGS: Final = Prepared(
    select(FileRow.created, FileRow.packaging, FileRow.path, BlobRow.digest, BlobRow.sha256, BlobRow.size)
    .join(BlobRow, BlobRow.digest == FileRow.blob)
    .where(FileRow.manifest == bindparam("manifest"))
    .order_by(FileRow.created, FileRow.packaging, FileRow.path)
)


def put(change: Change, manifest: Digest, entries: Sequence[tuple[str, Digest]]) -> bool:
    """Record a set of files (path, blob) of a manifest; False when this set was known."""
    return bool(change.ensure(FileRow, _rows(change, manifest, entries)))


def put_first(change: Change, packed: Mapping[Digest, Sequence[tuple[str, Digest]]]) -> None:
    """Record the files of manifests that were stored by this very change."""
    change.write(FileRow, [row for manifest, entries in packed.items() for row in _rows(change, manifest, entries)])


def packagings(reader: Reader, manifest: Digest) -> tuple[Packaging, ...]:
    """Every set of files of a manifest, oldest first."""
    rows = _PACKAGINGS.all(reader.connection, manifest=manifest)
    return tuple(
        Packaging(digest, created, tuple(FileEntry(*row[2:]) for row in group))
        for (created, digest), group in groupby(rows, key=lambda row: (row[0], row[1]))
    )


def holders(reader: Reader, blob: Digest) -> frozenset[Digest]:
    """Every manifest that came with this file."""
    return frozenset(reader.all(select(FileRow.manifest).where(FileRow.blob == blob).distinct()))


def _rows(change: Change, manifest: Digest, entries: Sequence[tuple[str, Digest]]) -> list[Values]:
    packaging = manifest_digest("packaging", canonical_bytes(dict(entries)))
    return [
        {"manifest": manifest, "packaging": packaging, "path": path, "blob": blob, "created": change.now}
        for path, blob in entries
    ]
