"""`registry add …` for what is written by hand: compute contracts."""

from __future__ import annotations

from typing import BinaryIO, Final

import click

from registry.cli.register import tell
from registry.cli.state import State, output_option, pass_state
from registry.service.specs import parse_document

NAME: Final = click.option("--name", required=True, help="Name to register it under.")
FILE: Final = click.argument("file", type=click.File("rb"))


@click.command("compute-contract")
@FILE
@NAME
@output_option
@pass_state
def add_compute_contract(state: State, file: BinaryIO, name: str) -> None:
    """Register the compute contract in FILE (YAML or JSON): what a conditional base routes, in 21 fields.

    `contract` is the name of a built-in contract or the 21 fields; `parameters` are its figures.
    """
    with state.registry() as registry:
        added = registry.add_compute_contract(parse_document(file.read()), name)
    tell(state, added)


COMMANDS: Final = (add_compute_contract,)
