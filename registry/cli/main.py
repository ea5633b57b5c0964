"""The `registry` command and its global flags."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from registry.cli.state import Commands, State

_HOMES: Final = {
    "change": ("admit", "publish", "rollback"),
    "continual": ("evaluation", "kv-identity", "state"),
    "contracts": ("contract",),
    "declare": ("add",),
    "demo.command": ("demo",),
    "explain": ("explain",),
    "handout": ("convert", "export", "sync"),
    "inspect": ("inspect",),
    "job": ("job",),
    "leases": ("lease",),
    "look": ("diff", "history", "lineage", "ls", "show"),
    "methods": ("method",),
    "operate": ("db", "init", "verify", "worker"),
    "oracle": ("oracle",),
    "policy": ("channel",),
    "retire": ("alias", "attest", "gc", "label", "purge", "yank"),
    "stack": ("stack",),
    "tokens": ("token",),
    "webhook": ("webhook",),
}
"""The modules beside this one, and the commands that each has in `COMMANDS`."""
_HOME_OF: Final = {command: home for home, commands in _HOMES.items() for command in commands}


@contextmanager
def loading() -> Iterator[None]:
    """Collects no garbage meanwhile: what is loaded stays, and looking through it takes a tenth of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Rooms(Commands):
    """Loads a command with all it needs when it is called: nobody waits for the other fifty."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command by name."""
        return sorted({*super().list_commands(ctx), *_HOME_OF})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None for no command."""
        home = _HOME_OF.get(cmd_name)
        if home is None:
            return super().get_command(ctx, cmd_name)
        with loading():
            commands: tuple[click.Command, ...] = import_module(f"registry.cli.{home}").COMMANDS
        return next(command for command in commands if command.name == cmd_name)


@click.group(cls=Rooms, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="adapter-registry", prog_name="registry")
@click.option("--url", help="A registry server, such as https://HOST; empty for a registry here. [REGISTRY_URL]")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the server's token. [REGISTRY_TOKEN]")
@click.option("--home", type=click.Path(path_type=Path), help="Folder of database and store. [REGISTRY_HOME]")
@click.option("--database-url", help="sqlite:///FILE or postgresql+psycopg://… [REGISTRY_DATABASE_URL]")
@click.option("--store-url", help="A folder or s3://BUCKET/PREFIX. [REGISTRY_STORE_URL]")
@click.option("--principal", help="Who is named in audit events. [REGISTRY_PRINCIPAL]")
@click.pass_context
def cli(ctx: click.Context, /, **flags: object) -> None:
    """A registry for low-rank adapters: what is it, may these be composed, what is live.

    Exit codes: 0 ok, 1 error, 2 usage, 3 refused, 4 not found, 5 conflict or stale head, 6 not allowed, 7 digest
    mismatch, 8 unavailable, 9 conditional and not acknowledged.
    """
    ctx.ensure_object(State).flags = {key: value for key, value in flags.items() if value is not None}
