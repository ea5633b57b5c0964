"""`registry lease acquire|renew|release|ls`."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.output import emit, emit_rows
from registry.cli.state import State, output_option, pass_state
from registry.service.results import Lease

TTL: Final = click.option("--ttl", type=float, default=60.0, show_default=True, help="Seconds until it runs out.")


@click.group()
def lease() -> None:
    """Holds of serving replicas on generations."""


@lease.command()
@click.argument("channel")
@click.option("--holder", required=True, help="Name of the replica.")
@TTL
@output_option
@pass_state
def acquire(state: State, channel: str, holder: str, ttl: float) -> None:
    """Bind a replica's new work to CHANNEL's newest generation."""
    with state.registry() as registry:
        _tell(state, registry.acquire_lease(channel, holder, ttl), "held until")


@lease.command()
@click.argument("lease_id")
@TTL
@output_option
@pass_state
def renew(state: State, lease_id: str, ttl: float) -> None:
    """Hold on to LEASE_ID's generation."""
    with state.registry() as registry:
        _tell(state, registry.renew_lease(lease_id, ttl), "held until")


@lease.command()
@click.argument("lease_id")
@output_option
@pass_state
def release(state: State, lease_id: str) -> None:
    """Let go of LEASE_ID's generation after the last use."""
    with state.registry() as registry:
        _tell(state, registry.release_lease(lease_id), "released, would have run out at")


@lease.command("ls")
@click.argument("channel")
@output_option
@pass_state
def drain(state: State, channel: str) -> None:
    """How far CHANNEL's older generations have drained."""
    with state.registry() as registry:
        view = registry.drain(channel)
    if state.output == "table":
        rows = [item.document() for item in view.generations]
        emit_rows(rows, state.output, ("generation", "state", "held", "expired"))
    else:
        emit(view.document(), state.output, ())


def _tell(state: State, found: Lease, word: str) -> None:
    line = f"{found.id}  {found.channel}@g{found.generation}  {word} {found.expires}"
    emit(found.document(), state.output, [line])


COMMANDS: Final = (lease,)
