"""Webhooks over the web, for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from registry.api.auth import Administering, Guarded
from registry.service import webhooks
from registry.service.webhooks import Deliveries, NewWebhook, Webhook
from schemas.model import Record

router = APIRouter(prefix="/v1/webhooks", route_class=Guarded, tags=["administration"])


class WebhookIn(Record):
    """Where to send, and the beginning of the channels' names; empty for all."""

    url: str = Field(min_length=1, max_length=2000, examples=["https://hooks.example.org/registry"])
    channel: str = Field(default="", max_length=96, examples=["prod-"])


@router.post("", status_code=201)
def post_webhook(context: Administering, body: WebhookIn) -> NewWebhook:
    """Tell a URL of new generations; the secret that signs them is in this answer and nowhere else."""
    return webhooks.add(context, body.url, body.channel)


@router.get("")
def get_webhooks(context: Administering) -> tuple[Webhook, ...]:
    """Every webhook that was not removed, oldest first."""
    return webhooks.ls(context)


@router.delete("/{webhook_id}", status_code=204)
def delete_webhook(context: Administering, webhook_id: str) -> None:
    """Remove a webhook with its secret and what still waited for it; one that was removed stays so."""
    webhooks.remove(context, webhook_id)


@router.get("/{webhook_id}/deliveries")
def get_deliveries(
    context: Administering,
    webhook_id: str,
    response: Response,
    after: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Deliveries:
    """What was sent to a webhook, newest first; `next` (also as a Link header) continues it."""
    page = webhooks.deliveries(context, webhook_id, after, limit)
    if page.next is not None:
        response.headers["Link"] = f'</v1/webhooks/{webhook_id}/deliveries?after={page.next}&limit={limit}>; rel="next"'
    return page
