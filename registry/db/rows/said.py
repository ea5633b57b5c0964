"""What is said about things and what happened to them: statements, labels, measurements, tokens, purges."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from registry.db.rows.core import AppendOnlyRow, Row, parsed
from schemas.canonical import JsonObject


class StatementRow(AppendOnlyRow, Row):
    """A statement manifest about a subject; the highest sequence of a topic is the current one."""

    __tablename__ = "statement"
    __table_args__ = (UniqueConstraint("digest"),)
    subject: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    digest: Mapped[str] = mapped_column(ForeignKey("manifest.digest"))
    created: Mapped[str]


class LabelRow(AppendOnlyRow, Row):
    """A label a statement set, or removed when `value` is null; the highest sequence of a key is the current one."""

    __tablename__ = "label"
    __table_args__ = (Index(None, "key", "value", "subject"),)
    subject: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[str | None]
    statement: Mapped[str] = mapped_column(ForeignKey("manifest.digest"))


class BodyRow(AppendOnlyRow):
    """A JSON body about a subject; a subject may have several, in order."""

    subject: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    body_json: Mapped[str]
    created: Mapped[str]

    @property
    def body(self) -> JsonObject:
        """The body."""
        return parsed(self.body_json)


class MeasurementRow(BodyRow, Row):
    """Floating figures of one computation, beside the manifest and outside its identity."""

    __tablename__ = "measurement"


class RunRecordRow(BodyRow, Row):
    """Seconds, memory, device and library release of one run."""

    __tablename__ = "run_record"


class PurgeEventRow(AppendOnlyRow, Row):
    """The tombstone of a manifest whose bytes were removed on purpose."""

    __tablename__ = "purge_event"
    subject: Mapped[str] = mapped_column(ForeignKey("manifest.digest"), primary_key=True)
    reason: Mapped[str]
    created: Mapped[str]


class TokenEventRow(AppendOnlyRow, Row):
    """A token was created (sequence 1, with the hash of its secret) or revoked (sequence 2)."""

    __tablename__ = "token_event"
    __table_args__ = (UniqueConstraint("secret_hash"),)
    token: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    principal: Mapped[str]
    secret_hash: Mapped[str | None]
    permissions_json: Mapped[str]
    expires: Mapped[str | None]
    created: Mapped[str]

    @property
    def permissions(self) -> JsonObject:
        """What the token allows."""
        return parsed(self.permissions_json)
