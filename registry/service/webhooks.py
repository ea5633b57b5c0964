"""Webhooks: who is told when a channel has a new generation.

A message is written in the transaction of its generation and sent after it, so none is lost and none is sent of what
did not happen; it may arrive twice or out of order, and its id tells.
"""

from __future__ import annotations

import base64
import re
import secrets
from typing import Final
from urllib.parse import urlsplit

from registry.db import Change, webhooks
from registry.db.rows import WebhookDeliveryRow, WebhookEventRow
from registry.errors import Problem, UsageProblemError
from registry.service.context import Context
from registry.service.results import Published
from schemas.canonical import JsonObject
from schemas.model import Record

MARK: Final = "whsec_"
"""What a secret begins with (Standard Webhooks)."""
EVENT: Final = "channel.generation"
_CHANNELS: Final = re.compile(r"([a-z0-9][a-z0-9._-]{0,95})?")
_LONGEST_URL: Final = 2_000


class Webhook(Record):
    """Who is told of which channels; never its secret."""

    id: str
    url: str
    channel: str
    created: str


class NewWebhook(Record):
    """A webhook just added; `secret` signs its messages and is not shown again."""

    id: str
    url: str
    channel: str
    secret: str


class Delivery(Record):
    """One message: `waiting` until `due`, `delivered` or `dead`; `answer` is the last HTTP status or failure."""

    id: str
    channel: str
    generation: int
    status: str
    attempts: int
    due: str
    created: str
    answer: str | None


class Deliveries(Record):
    """One page of messages, newest first."""

    items: tuple[Delivery, ...]
    next: str | None


def add(context: Context, url: str, channel: str = "") -> NewWebhook:
    """Tell a URL of every generation of channels that begin with `channel`, from now on.

    The secret is kept as it is, because signing needs it, until the webhook is removed.

    Raises:
        UsageProblemError: `WEBHOOK_URL_INVALID`, `CHANNEL_PREFIX_INVALID`.
    """
    context.require("admin")
    _check_url(url)
    if not _CHANNELS.fullmatch(channel):
        hint = "Write the beginning of channel names, such as prod-, or nothing for all channels."
        raise UsageProblemError(
            _problem("CHANNEL_PREFIX_INVALID", "what a channel's name can begin with", channel, hint)
        )
    secret = MARK + base64.b64encode(secrets.token_bytes(32)).decode()

    def work(change: Change) -> NewWebhook:
        row = webhooks.add(change, url, channel, secret)
        return NewWebhook(id=row.webhook, url=row.url, channel=row.prefix, secret=secret)

    return context.database.change("webhook.add", context.principal, work)


def ls(context: Context) -> tuple[Webhook, ...]:
    """Every webhook that was not removed, oldest first."""
    context.require("admin")
    with context.database.reading() as reader:
        return tuple(map(_webhook, webhooks.live(reader)))


def remove(context: Context, webhook: str) -> None:
    """Remove a webhook, its secret, and what still waited. Raises NotFoundError `WEBHOOK_UNKNOWN`."""
    context.require("admin")
    context.database.change("webhook.remove", context.principal, lambda change: webhooks.remove(change, webhook))


def deliveries(context: Context, webhook: str, after: str | None = None, limit: int = 50) -> Deliveries:
    """What was sent to a webhook, newest first. Raises NotFoundError `WEBHOOK_UNKNOWN`."""
    context.require("admin")
    with context.database.reading() as reader:
        webhooks.get(reader, webhook)
        page = webhooks.deliveries(reader, webhook, after, limit).map(_delivery)
    return Deliveries(items=page.items, next=page.next)


def tell(change: Change, published: Published) -> None:
    """Write what is to be told of a generation, in its own transaction."""
    body: JsonObject = {"type": EVENT, "timestamp": change.now, "data": published.document()}
    webhooks.put(change, published.channel, published.generation, body)


def _webhook(row: WebhookEventRow) -> Webhook:
    return Webhook(id=row.webhook, url=row.url, channel=row.prefix, created=row.created)


def _delivery(row: WebhookDeliveryRow) -> Delivery:
    return Delivery(
        id=row.id,
        channel=row.channel,
        generation=row.number,
        status=row.status,
        attempts=row.attempts,
        due=row.due,
        created=row.created,
        answer=row.answer,
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    plain = len(url) <= _LONGEST_URL and url.isascii() and url.isprintable() and " " not in url
    if not (named and plain and parts.scheme in ("http", "https") and "@" not in parts.netloc):
        # what it holds may be a secret, so it is not repeated
        hint = "Write https://HOST/PATH; a secret belongs into the signature, not into the URL."
        raise UsageProblemError(_problem("WEBHOOK_URL_INVALID", "an http(s) URL without credentials", "another", hint))


def _problem(code: str, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=expected, observed=observed[:120], hint=hint)
