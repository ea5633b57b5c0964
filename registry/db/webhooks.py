"""Webhooks, added and removed by events, and the messages to them: an outbox written with what it tells of."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Select, delete, select, update

from registry.db import paging
from registry.db.paging import Page
from registry.db.prepared import Values
from registry.db.problems import found
from registry.db.rows import WebhookDeliveryRow, WebhookEventRow, WebhookSecretRow
from registry.db.session import Change, Reader, stamp
from schemas.canonical import JsonObject, canonical_bytes

SETTLED: Final = ("delivered", "dead")
"""Nothing more is sent; `due` is then the moment it was settled."""


def add(change: Change, url: str, prefix: str, secret: str) -> WebhookEventRow:
    """Tell `url` of every generation of channels that begin with `prefix`, from now on."""
    row = WebhookEventRow(webhook=secrets.token_hex(8), sequence=1, url=url, prefix=prefix, created=change.now)
    change.append(row)
    change.insert(WebhookSecretRow(webhook=row.webhook, secret=secret))
    return row


def remove(change: Change, webhook: str) -> bool:
    """End a webhook, forget its secret and what was still waiting; False when it had ended.

    Raises:
        NotFoundError: `WEBHOOK_UNKNOWN`.
    """
    added = get(change, webhook)
    end: Values = {
        "webhook": webhook,
        "sequence": 2,
        "url": added.url,
        "prefix": added.prefix,
        "created": change.now,
    }
    ended = bool(change.ensure(WebhookEventRow, [end]))
    connection = change.session.connection()
    connection.execute(delete(WebhookSecretRow).where(WebhookSecretRow.webhook == webhook))
    mine = (WebhookDeliveryRow.webhook == webhook, WebhookDeliveryRow.status == "waiting")
    connection.execute(delete(WebhookDeliveryRow).where(*mine))
    return ended


def get(reader: Reader, webhook: str) -> WebhookEventRow:
    """A webhook, ended or not. Raises NotFoundError `WEBHOOK_UNKNOWN`."""
    mine = select(WebhookEventRow).where(WebhookEventRow.webhook == webhook, WebhookEventRow.sequence == 1)
    hint = "List the webhooks with `registry webhook ls`."
    return found(reader.one(mine), "WEBHOOK_UNKNOWN", f"a webhook {webhook}", hint)


def live(reader: Reader) -> tuple[WebhookEventRow, ...]:
    """Every webhook that has not ended, oldest first."""
    has_secret = WebhookSecretRow.webhook == WebhookEventRow.webhook
    mine = select(WebhookEventRow).join(WebhookSecretRow, has_secret).where(WebhookEventRow.sequence == 1)
    return reader.all(mine.order_by(WebhookEventRow.created, WebhookEventRow.webhook))


def secret_of(reader: Reader, webhook: str) -> str | None:
    """What its messages are signed with; None when it ended."""
    return reader.one(select(WebhookSecretRow.secret).where(WebhookSecretRow.webhook == webhook))


def put(change: Change, channel: str, number: int, body: JsonObject) -> None:
    """Write a message to each webhook that hears of a channel, to be sent after this transaction."""
    text = canonical_bytes(body).decode()
    for webhook in live(change):
        if channel.startswith(webhook.prefix):
            change.insert(
                WebhookDeliveryRow(
                    id=f"msg_{secrets.token_hex(16)}",
                    webhook=webhook.webhook,
                    channel=channel,
                    number=number,
                    body_json=text,
                    status="waiting",
                    attempts=0,
                    due=change.now,
                    created=change.now,
                    updated=change.now,
                )
            )


def due(reader: Reader) -> bool:
    """Whether a message waits to be sent now."""
    return reader.one(_due(reader)) is not None


def claim(change: Change, hold_s: float) -> WebhookDeliveryRow | None:
    """Take the message that waits longest; unless it is settled within `hold_s` seconds, another may take it."""
    row = change.one(_due(change).with_for_update(skip_locked=True))
    if row is None:
        return None
    _set(change, row, attempts=row.attempts + 1, due=_later(change, hold_s))
    return change.one(
        select(WebhookDeliveryRow).where(WebhookDeliveryRow.id == row.id).execution_options(populate_existing=True)
    )


def settle(change: Change, row: WebhookDeliveryRow, status: str, answer: str, wait_s: float = 0.0) -> bool:
    """Record what became of a claimed message; False when somebody else claimed it since."""
    return _set(change, row, status=status, answer=answer, due=_later(change, wait_s))


def deliveries(reader: Reader, webhook: str, after: str | None = None, limit: int = 50) -> Page[WebhookDeliveryRow]:
    """One page of the messages to a webhook, newest first."""
    mine = select(WebhookDeliveryRow).where(WebhookDeliveryRow.webhook == webhook)
    keys = (WebhookDeliveryRow.created, WebhookDeliveryRow.id)
    return paging.page(reader, mine, keys, after, limit, newest_first=True)


def sweep(change: Change, before: str) -> int:
    """Forget messages that were settled before a time; how many."""
    old = (WebhookDeliveryRow.status.in_(SETTLED), WebhookDeliveryRow.due < before)
    return change.session.connection().execute(delete(WebhookDeliveryRow).where(*old)).rowcount


def _due(reader: Reader) -> Select[WebhookDeliveryRow]:
    waiting = (WebhookDeliveryRow.status == "waiting", WebhookDeliveryRow.due <= reader.now)
    return select(WebhookDeliveryRow).where(*waiting).order_by(WebhookDeliveryRow.due, WebhookDeliveryRow.id).limit(1)


def _set(change: Change, row: WebhookDeliveryRow, **values: str | int) -> bool:
    unchanged = (
        WebhookDeliveryRow.id == row.id,
        WebhookDeliveryRow.status == "waiting",
        WebhookDeliveryRow.attempts == row.attempts,
    )
    done = change.session.connection().execute(
        update(WebhookDeliveryRow).where(*unchanged).values(updated=change.now, **values)
    )
    return done.rowcount == 1


def _later(change: Change, seconds: float) -> str:
    return stamp(datetime.fromisoformat(change.now) + timedelta(seconds=seconds))
