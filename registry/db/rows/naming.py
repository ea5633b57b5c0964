"""Names, versions, aliases and the generations of channels."""

from __future__ import annotations

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from registry.db.rows.core import AppendOnlyRow, Row


class NameRow(AppendOnlyRow, Row):
    """A name belongs to one kind for ever."""

    __tablename__ = "name"
    __table_args__ = (UniqueConstraint("name", "kind"), Index(None, "kind", "name"))
    name: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    created: Mapped[str]


class NameVersionRow(AppendOnlyRow, Row):
    """Version `version` (from 1) of a name is this manifest; numbers are never reused."""

    __tablename__ = "name_version"
    __table_args__ = (
        ForeignKeyConstraint(["name", "kind"], ["name.name", "name.kind"]),
        UniqueConstraint("name", "digest"),
    )
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    digest: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), index=True)
    created: Mapped[str]


class AliasEventRow(AppendOnlyRow, Row):
    """An alias was moved to a version; the event with the highest sequence is the current one."""

    __tablename__ = "alias_event"
    __table_args__ = (ForeignKeyConstraint(["name", "version"], ["name_version.name", "name_version.version"]),)
    name: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]
    created: Mapped[str]


class GenerationArtifactRow(AppendOnlyRow, Row):
    """One artifact of a generation's ordered tuple."""

    __tablename__ = "generation_artifact"
    __table_args__ = (ForeignKeyConstraint(["channel", "number"], ["generation.channel", "generation.number"]),)
    channel: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    artifact: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), index=True)


class GenerationRow(AppendOnlyRow, Row):
    """Generation `number` (from 1, without gaps) of a channel; the highest is live."""

    __tablename__ = "generation"
    __table_args__ = (Index(None, "number", "channel"),)
    channel: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    publication: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), unique=True)
    reason: Mapped[str]
    restored: Mapped[int | None]
    created: Mapped[str]
    parts: Mapped[list[GenerationArtifactRow]] = relationship(
        init=False, repr=False, viewonly=True, lazy="selectin", order_by=GenerationArtifactRow.position
    )

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The artifact digests in order."""
        return tuple(part.artifact for part in self.parts)
