"""`registry token`."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.output import emit, emit_rows
from registry.cli.state import State, output_option, pass_state
from registry.service.tokens import PERMISSIONS, Permission


@click.group()
def token() -> None:
    """Bearer tokens for the server."""


@token.command("create")
@click.argument("principal")
@click.option("--allow", multiple=True, required=True, type=click.Choice(PERMISSIONS), help="Repeat for several.")
@output_option
@pass_state
def create(state: State, principal: str, allow: tuple[Permission, ...]) -> None:
    """Make a token for PRINCIPAL; it is shown once, on stdout, its id on stderr."""
    with state.registry() as registry:
        made = registry.create_token(principal, allow)
    emit(made.document(), state.output, [made.secret])
    if state.output == "table":
        click.echo(f"token {made.id}: {made.principal} may {', '.join(made.permissions)}", err=True)


@token.command("ls")
@output_option
@pass_state
def list_tokens(state: State) -> None:
    """List tokens by id; never their secrets."""
    with state.registry() as registry:
        rows = [item.document() for item in registry.tokens()]
    emit_rows(rows, state.output, ("id", "principal", "permissions", "revoked", "created"))


@token.command("revoke")
@click.argument("token_id")
@pass_state
def revoke(state: State, token_id: str) -> None:
    """Revoke a token by its id."""
    with state.registry() as registry:
        registry.revoke_token(token_id)
    click.echo(f"revoked {token_id}")


COMMANDS: Final = (token,)
