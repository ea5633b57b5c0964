"""`registry explain`."""

from __future__ import annotations

import json
from typing import Final

import click

from registry.cli.output import emit
from registry.cli.state import State, output_option, pass_state
from registry.service.explain import explain as explained
from schemas.canonical import JsonValue


@click.command()
@click.argument("name")
@output_option
@pass_state
def explain(state: State, name: str) -> None:
    """What a code or a failure of the catalogue means, and who repairs it how.

    NAME is a code of a message or a decision, or the failure that such a code leads to.
    """
    fields = explained(name)
    told = {key: _told(value) for key, value in fields.items() if value is not None}
    emit(fields, state.output, [f"{key:<12} {value}" for key, value in told.items()])


def _told(value: JsonValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {json.dumps(item)}" for key, item in value.items())
    return str(value)


COMMANDS: Final = (explain,)
