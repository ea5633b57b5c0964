"""`registry contract diff`."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.output import emit
from registry.cli.state import State, output_option, pass_state


@click.group()
def contract() -> None:
    """What conditional bases route."""


@contract.command()
@click.argument("left")
@click.argument("right")
@output_option
@pass_state
def diff(state: State, left: str, right: str) -> None:
    """Fields in which the contracts LEFT and RIGHT differ: names of built-in ones, or references."""
    with state.registry() as registry:
        found = registry.contract_diff(left, right)
    lines = [f"{found.equivalence}  distance {found.distance} of 21"]
    lines += [f"{pair.field}: {pair.left} | {pair.right}" for pair in found.fields]
    lines += [f"{pair.field}: {pair.left} | {pair.right} (undetermined)" for pair in found.undetermined]
    emit(found.document(), state.output, lines)


COMMANDS: Final = (contract,)
