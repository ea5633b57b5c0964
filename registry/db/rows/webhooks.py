"""Webhooks: who is told of a channel's generations, and what was told."""

from __future__ import annotations

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from registry.db.rows.core import AppendOnlyRow, Row


class WebhookEventRow(AppendOnlyRow, Row):
    """A webhook was added (sequence 1) or removed (sequence 2); it hears of channels that begin with `prefix`."""

    __tablename__ = "webhook_event"
    webhook: Mapped[str] = mapped_column(primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    url: Mapped[str]
    prefix: Mapped[str]
    created: Mapped[str]


class WebhookSecretRow(Row):
    """What a live webhook's messages are signed with: no history, so that removing the webhook removes it."""

    __tablename__ = "webhook_secret"
    webhook: Mapped[str] = mapped_column(primary_key=True)
    secret: Mapped[str]


class WebhookDeliveryRow(Row):
    """One message to one webhook: `waiting` (due at `due`), `delivered` or `dead`.

    Whoever sends it moves `due` into the future first, so that nobody else sends it meanwhile; `answer` is the last
    HTTP status or why there was none.
    """

    __tablename__ = "webhook_delivery"
    __table_args__ = (Index(None, "status", "due", "id"), Index(None, "webhook", "created", "id"))
    id: Mapped[str] = mapped_column(primary_key=True)
    webhook: Mapped[str]
    channel: Mapped[str]
    number: Mapped[int]
    body_json: Mapped[str]
    status: Mapped[str]
    attempts: Mapped[int]
    due: Mapped[str]
    created: Mapped[str]
    updated: Mapped[str]
    answer: Mapped[str | None] = mapped_column(default=None)
