"""`registry state`, `registry evaluation`, `registry kv-identity`: what registered records say together."""

from __future__ import annotations

from typing import Final

import click

from registry.cli.output import emit, emit_rows
from registry.cli.refs import generation
from registry.cli.state import State, output_option, pass_state
from schemas.names import short


@click.command("state")
@click.argument("ref")
@output_option
@pass_state
def state_report(state: State, ref: str) -> None:
    """What the continual state REF costs, and how its tasks fared."""
    with state.registry() as registry:
        found = registry.state_report(ref)
    books = found.ledgers
    lines = [
        f"tasks: {', '.join(found.tasks)}",
        f"inference: {books.branches} branches and {books.logits} logits a row; "
        f"{books.factors} factor scalars, {books.selector} of the selector",
        f"training: {books.trainable} trainable, {books.frozen} frozen",
        f"rollback: {len(books.rollback)} earlier states",
    ]
    lines += [f"capacity {module}: {ranks} of {width}" for module, (ranks, width) in books.capacity.items()]
    if found.transfer is not None:
        moved = found.transfer
        forgotten = ", ".join(map(_score, moved.forgetting))
        lines.append(
            f"ACC {_score(moved.acc)}  BWT {_score(moved.bwt)}  FWT {_score(moved.fwt)}  forgetting {forgotten}"
        )
    emit(found.document(), state.output, lines)


@click.command("kv-identity")
@click.argument("channel")
@click.option("--generation", "number", metavar="gN", help="Which generation; default: the live one.")
@output_option
@pass_state
def kv_identity(state: State, channel: str, number: str | None) -> None:
    """The cache identity of CHANNEL's generation, and the request fields a server adds to it."""
    with state.registry() as registry:
        found = registry.cache_identity(channel, generation(number, "--generation"))
    lines = [f"{found.channel}@g{found.generation}  {found.kv_identity}"]
    lines += [f"{key}: {value}" for key, value in found.static.items() if key not in ("kind", "schema")]
    lines.append(f"the server adds: {', '.join(found.request_fields)}")
    emit(found.document(), state.output, lines)


@click.command("evaluation")
@click.argument("ref")
@output_option
@pass_state
def evaluation_report(state: State, ref: str) -> None:
    """Paired differences of the evaluation REF, and whether its selected candidate passed."""
    with state.registry() as registry:
        found = registry.evaluation_report(ref)
    if state.output != "table":
        emit(found.document(), state.output, ())
        return
    rows = [{"split": split, **item.document()} for split in ("selection", "test") for item in getattr(found, split)]
    emit_rows(rows, state.output, ("split", "quality", "pairs", "missing", "mean", "standard_error"))
    click.echo(f"{found.verdict}: {short(found.selected)}")


def _score(value: float | None) -> str:
    return "missing" if value is None else f"{value:.3f}"


COMMANDS: Final = (state_report, evaluation_report, kv_identity)
