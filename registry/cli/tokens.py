"""`registry token`."""

from __future__ import annotations

import re
from typing import Final

import click

from registry.cli.output import emit, emit_rows
from registry.cli.state import State, output_option, pass_state

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Span(click.ParamType[float]):
    """A time to live, such as 90d, 12h, 30m or 45s; in seconds."""

    name = "span"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, or a usage error."""
        match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", str(value))
        if match is None:
            self.fail(f"{value!r} is no time to live; write a number and s, m, h or d, such as 90d", param, ctx)
        return float(int(match[1]) * _UNITS[match[2]])


@click.group()
def token() -> None:
    """Bearer tokens for the server."""


@token.command("create")
@click.argument("principal")
@click.option(
    "--allow",
    multiple=True,
    required=True,
    metavar="PERMISSION[:PREFIX]",
    help="read, register, compose, publish or admin, for everything or for names (publish: channels) that begin with "
    "PREFIX. Repeat for several.",
)
@click.option("--expires", type=Span(), metavar="SPAN", help="When it ends, such as 90d or 12h; never by default.")
@output_option
@pass_state
def create(state: State, principal: str, allow: tuple[str, ...], expires: float | None) -> None:
    """Make a token for PRINCIPAL; it is shown once, on stdout, its id on stderr."""
    with state.registry() as registry:
        made = registry.create_token(principal, allow, expires_s=expires)
    emit(made.document(), state.output, [made.secret])
    if state.output == "table":
        until = "" if made.expires is None else f" until {made.expires}"
        click.echo(f"token {made.id}: {made.principal} may {', '.join(made.permissions)}{until}", err=True)


@token.command("ls")
@output_option
@pass_state
def list_tokens(state: State) -> None:
    """List tokens by id; never their secrets."""
    with state.registry() as registry:
        rows = [item.document() for item in registry.tokens()]
    emit_rows(rows, state.output, ("id", "principal", "permissions", "expires", "expired", "revoked", "created"))


@token.command("revoke")
@click.argument("token_id")
@pass_state
def revoke(state: State, token_id: str) -> None:
    """Revoke a token by its id."""
    with state.registry() as registry:
        registry.revoke_token(token_id)
    click.echo(f"revoked {token_id}")


COMMANDS: Final = (token,)
