"""`registry stack check NAME`."""

from __future__ import annotations

from typing import Final

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from registry.cli.exits import EXIT_CODES
from registry.cli.output import console, emit
from registry.cli.state import State, output_option, pass_state
from registry.errors import DecisionRefusedError, NotAcknowledgedError
from schemas.decision import COORDINATES, Outcome
from schemas.stack import StackDecision
from validators.stacks import WORDS, decide_stack, parse_stack

_EXITS: Final[dict[Outcome, int]] = {
    "admitted": 0,
    "conditional": EXIT_CODES[NotAcknowledgedError],
    "refused": EXIT_CODES[DecisionRefusedError],
}
_NEXT: Final[dict[Outcome, str]] = {
    "admitted": "admitted for reload testing: train, save, load and compare before it is served",
    "conditional": "conditional: every coordinate that does not pass needs an entry in the manifest and its own test",
    "refused": "refused: somebody would first have to make the missing derivation, owner or export",
}


@click.group()
def stack() -> None:
    """Variants of low-rank adaptation used together."""


@stack.command(epilog=f"Words of a name: {', '.join(WORDS)}.")
@click.argument("name", nargs=-1, required=True)
@output_option
@click.pass_context
@pass_state
def check(state: State, ctx: click.Context, name: tuple[str, ...]) -> None:
    """The compatibility vector of the stack NAME: eight statuses with reasons, and what follows from them.

    NAME joins methods by +: qlora+dora, lora+ with dora, "pissa+rslora(patterned)". Exit code 0 when every coordinate
    passes, 9 when some are conditional, 3 when one refuses.
    """
    decision = decide_stack(parse_stack(" ".join(name)))
    if state.output == "table":
        console().print(_table(decision))
    else:
        emit(decision.document(), state.output, ())
    ctx.exit(_EXITS[decision.outcome])


def _table(decision: StackDecision) -> Group:
    vector = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("coordinate", "status", "evidence", "reason"):
        vector.add_column(column, overflow="fold", no_wrap=column != "reason")
    for coordinate in COORDINATES:
        status = getattr(decision.vector, coordinate)
        vector.add_row(coordinate, status.status, status.evidence, decision.reasons[status.reason])
    axes = decision.stack.document()
    return Group(
        Text(", ".join(f"{axis} {_words(value)}" for axis, value in axes.items())),
        vector,
        Text(f"artifact must hold: {', '.join(decision.artifact)}"),
        Text(_NEXT[decision.outcome]),
    )


def _words(value: object) -> str:
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


COMMANDS: Final = (stack,)
