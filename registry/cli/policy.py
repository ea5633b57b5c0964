"""`registry channel policy`."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.output import emit
from registry.cli.state import State, output_option, pass_state
from registry.client import Registry
from registry.errors import NotFoundError
from schemas.canonical import JsonObject
from schemas.publication import ChannelPolicy

LEVELS: Final = ("any", "declared", "structural", "content")


@click.group()
def channel() -> None:
    """What channels ask of what is published to them."""


@channel.command()
@click.argument("name")
@click.option(
    "--evidence", type=click.Choice(["any", "declared", "structural", "content"]), help="How far bases are read."
)
@click.option("--evaluation/--no-evaluation", default=None, help="Whether a passed evaluation is required.")
@output_option
@pass_state
def policy(state: State, name: str, evidence: str | None, evaluation: bool | None) -> None:
    """Show NAME's policy, or change what is given; the next publication is held to it."""
    chosen = {"evidence": evidence, "evaluation": evaluation}
    changes: JsonObject = {key: value for key, value in chosen.items() if value is not None}
    with state.registry() as registry:
        found: ChannelPolicy = registry.channel_policy(name)
        if changes:
            found = registry.set_channel_policy(name, found.document() | changes)
        if not _published(registry, name):
            click.echo(f"note: {name} has no generation yet", err=True)
    emit(found.document(), state.output, [f"{key}: {value}" for key, value in found.document().items()])


def _published(registry: Registry, channel: str) -> bool:
    try:
        return bool(registry.history(channel, limit=1))
    except NotFoundError:
        return False


COMMANDS: Final = (channel,)
