"""The `registry` command and its global flags."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from registry.cli import (
    change,
    continual,
    contracts,
    declare,
    handout,
    inspect,
    job,
    leases,
    look,
    methods,
    operate,
    oracle,
    policy,
    register,
    retire,
    stack,
    tokens,
    webhook,
)
from registry.cli.state import Commands, State


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version("adapter-registry"), prog_name="registry")
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


for command in (
    *register.COMMANDS,
    *inspect.COMMANDS,
    *look.COMMANDS,
    *methods.COMMANDS,
    *change.COMMANDS,
    *handout.COMMANDS,
    *contracts.COMMANDS,
    *continual.COMMANDS,
    *leases.COMMANDS,
    *job.COMMANDS,
    *policy.COMMANDS,
    *operate.COMMANDS,
    *oracle.COMMANDS,
    *retire.COMMANDS,
    *stack.COMMANDS,
    *tokens.COMMANDS,
    *webhook.COMMANDS,
):
    cli.add_command(command)

for command in declare.COMMANDS:
    register.add.add_command(command)
