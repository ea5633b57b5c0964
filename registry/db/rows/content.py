"""Content: blobs, manifests, their edges, and where bytes lie."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.db.rows.core import AppendOnlyRow, Row


class BlobRow(AppendOnlyRow, Row):
    """A file by content: both digests and its size in bytes. Whether a store holds it says `blob_presence`."""

    __tablename__ = "blob"
    digest: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(index=True)
    size: Mapped[int]


def _filter_index(column: str, *others: str) -> Index:
    """An index that answers one list filter in page order; rows without the value take no room in it."""
    present = text(f"{column} IS NOT NULL")
    columns = (column, *others, "created", "digest")
    return Index(None, *columns, sqlite_where=present, postgresql_where=present)


class ManifestRow(AppendOnlyRow, Row):
    """A manifest: `data` are the exact canonical bytes that were hashed, the rest are columns to search by."""

    __tablename__ = "manifest"
    __table_args__ = (
        Index(None, "created", "digest"),
        Index(None, "kind", "created", "digest"),
        _filter_index("base", "kind"),
        _filter_index("family"),
        _filter_index("method"),
        _filter_index("outcome"),
    )
    digest: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    data: Mapped[bytes]
    created: Mapped[str]
    base: Mapped[str | None] = mapped_column(default=None)
    family: Mapped[str | None] = mapped_column(default=None)
    method: Mapped[str | None] = mapped_column(default=None)
    outcome: Mapped[str | None] = mapped_column(default=None)


class EdgeRow(AppendOnlyRow, Row):
    """`child` was made from `parent` in a role; `position` orders parents of one role."""

    __tablename__ = "edge"
    __table_args__ = (Index(None, "parent", "child"),)
    child: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    parent: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class FileRow(AppendOnlyRow, Row):
    """One file of one packaging of a manifest; a manifest may come in several packagings."""

    __tablename__ = "file"
    manifest: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    packaging: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    blob: Mapped[str] = mapped_column(ForeignKey("blob.digest"), index=True)
    created: Mapped[str]


class TensorLocationRow(AppendOnlyRow, Row):
    """Where a tensor's raw bytes lie: `length` bytes from byte `offset` of a blob."""

    __tablename__ = "tensor_location"
    tensor: Mapped[str] = mapped_column(primary_key=True)
    blob: Mapped[str] = mapped_column(ForeignKey("blob.digest"), primary_key=True, index=True)
    offset: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    length: Mapped[int]
    dtype: Mapped[str]
    shape_json: Mapped[str]


class BaseLocationRow(AppendOnlyRow, Row):
    """Where a referenced base file lay, and the size and time of change by which it is recognised before re-hashing."""

    __tablename__ = "base_location"
    base: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    directory: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    blob: Mapped[str] = mapped_column(ForeignKey("blob.digest"), primary_key=True, index=True)
    mtime_ns: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    size: Mapped[int]
    created: Mapped[str]


class EvidenceRow(AppendOnlyRow, Row):
    """How well something is known: aspect `evidence` (of a base) or `binding` (of an adapter to its base)."""

    __tablename__ = "evidence"
    subject: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    aspect: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    level: Mapped[str]
    created: Mapped[str]
