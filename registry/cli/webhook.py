"""`registry webhook`."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.output import emit, emit_rows
from registry.cli.state import State, output_option, pass_state


@click.group()
def webhook() -> None:
    """Who is told of new generations of channels."""


@webhook.command("add")
@click.argument("url")
@click.option("--channel", metavar="PREFIX", default="", help="The beginning of channel names; all channels without.")
@output_option
@pass_state
def add(state: State, url: str, channel: str) -> None:
    """Tell URL of new generations; the secret that signs the messages is shown once, on stdout."""
    with state.registry() as registry:
        made = registry.add_webhook(url, channel)
    emit(made.document(), state.output, [made.secret])
    if state.output == "table":
        click.echo(f"webhook {made.id}: {made.url} hears of {made.channel or 'all channels'}", err=True)


@webhook.command("ls")
@output_option
@pass_state
def list_webhooks(state: State) -> None:
    """List webhooks; never their secrets."""
    with state.registry() as registry:
        rows = [item.document() for item in registry.webhooks()]
    emit_rows(rows, state.output, ("id", "url", "channel", "created"))


@webhook.command("rm")
@click.argument("webhook_id")
@pass_state
def remove(state: State, webhook_id: str) -> None:
    """Remove a webhook, its secret and what still waited for it."""
    with state.registry() as registry:
        registry.remove_webhook(webhook_id)
    click.echo(f"removed {webhook_id}")


@webhook.command("deliveries")
@click.argument("webhook_id")
@click.option("--after", help="`next` of the page before.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@output_option
@pass_state
def deliveries(state: State, webhook_id: str, after: str | None, limit: int) -> None:
    """What was sent to a webhook, newest first."""
    with state.registry() as registry:
        page = registry.webhook_deliveries(webhook_id, after, limit)
    rows = [item.document() for item in page.items]
    emit_rows(rows, state.output, ("id", "channel", "generation", "status", "attempts", "answer", "due"))
    if page.next is not None:
        click.echo(f"more: --after {page.next}", err=True)


COMMANDS: Final = (webhook,)
