"""Working tables: rows here come, change and go; nothing in them is history."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from registry.db.rows.core import Row, parsed
from schemas.canonical import JsonObject


class UploadSessionRow(Row):
    """A resumable upload: `offset` bytes were acknowledged last; `name` is what the file may be called."""

    __tablename__ = "upload_session"
    id: Mapped[str] = mapped_column(primary_key=True)
    principal: Mapped[str]
    expected: Mapped[str | None] = mapped_column(index=True)
    size: Mapped[int | None]
    offset: Mapped[int]
    created: Mapped[str]
    expires: Mapped[str] = mapped_column(index=True)
    name: Mapped[str | None] = mapped_column(default=None)


class BlobPresenceRow(Row):
    """The store holds this blob; `checked` is when that was last seen."""

    __tablename__ = "blob_presence"
    blob: Mapped[str] = mapped_column(ForeignKey("blob.digest"), primary_key=True)
    checked: Mapped[str]


class IdempotencyKeyRow(Row):
    """The answer a caller's key already got, and the digest of the request it belonged to."""

    __tablename__ = "idempotency_key"
    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request: Mapped[str]
    response_json: Mapped[str]
    created: Mapped[str] = mapped_column(index=True)

    @property
    def response(self) -> JsonObject:
        """The stored answer."""
        return parsed(self.response_json)


class LeaseRow(Row):
    """A reader holds a generation until `expires`."""

    __tablename__ = "lease"
    __table_args__ = (Index(None, "channel", "expires"),)
    id: Mapped[str] = mapped_column(primary_key=True)
    channel: Mapped[str]
    number: Mapped[int]
    holder: Mapped[str]
    created: Mapped[str]
    expires: Mapped[str]


class JobRow(Row):
    """Work for later: `queued`, `running`, `done`, `failed` or `cancelled`.

    `live_key` is the key of a job that did not fail and was not cancelled; it is unique.
    """

    __tablename__ = "job"
    __table_args__ = (Index(None, "status", "created", "id"), Index(None, "created", "id"))
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    key: Mapped[str]
    live_key: Mapped[str | None] = mapped_column(unique=True)
    status: Mapped[str]
    request_json: Mapped[str]
    principal: Mapped[str]
    created: Mapped[str]
    updated: Mapped[str]
    result_json: Mapped[str | None] = mapped_column(default=None)
    error_json: Mapped[str | None] = mapped_column(default=None)
    progress_json: Mapped[str | None] = mapped_column(default=None)
    attempts: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str | None] = mapped_column(default=None)

    @property
    def request(self) -> JsonObject:
        """What is to be done."""
        return parsed(self.request_json)

    @property
    def result(self) -> JsonObject | None:
        """What came out, when done."""
        return None if self.result_json is None else parsed(self.result_json)

    @property
    def error(self) -> JsonObject | None:
        """Why it failed."""
        return None if self.error_json is None else parsed(self.error_json)

    @property
    def progress(self) -> JsonObject | None:
        """How far it is."""
        return None if self.progress_json is None else parsed(self.progress_json)
