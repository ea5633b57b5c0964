"""Changing commands: `admit`, `publish`, `rollback`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, Final

import click

from registry.cli.bars import steps_bar
from registry.cli.output import console, emit
from registry.cli.refs import ReadFile, generation
from registry.cli.report import decision_table, ledger_table, names_of
from registry.cli.spec_help import SPEC_HELP
from registry.cli.state import State, output_option, pass_state
from registry.service.decide import require_proceeding
from registry.service.results import Admitted, Published
from schemas.digests import Digest
from schemas.names import short


@click.command(epilog=SPEC_HELP)
@click.argument("spec", type=ReadFile())
@click.option("--dry-run", is_flag=True, help="Decide only; store nothing.")
@click.option("--plan", is_flag=True, help="Decide and cost the work; store nothing.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Modules composed at a time, one BLAS thread each; refused with --url.",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(2**26),
    help="Bytes the work may hold; more is refused before it. Refused with --url.",
)
@output_option
@pass_state
def admit(
    state: State, spec: BinaryIO, dry_run: bool, plan: bool, workers: int | None, memory_limit: int | None
) -> None:
    """Decide on the composition SPEC, store the decision, compose when admitted.

    SPEC is a file of YAML or JSON, - for stdin:

    \b
      name: support
      base: minilm
      method: cat
      space: delta
      members:
        - {ref: qa-lora, weight: 1.0}
        - {ref: tone-rslora, weight: -0.5}
    """
    chosen = {"workers": workers, "memory_limit": memory_limit}
    state.flags |= {key: value for key, value in chosen.items() if value is not None}
    with state.registry() as registry, steps_bar("composing") as progress:
        answer = registry.admit(spec.read(), dry_run=dry_run, plan=plan, progress=progress)
        names = names_of(registry, answer) if state.output == "table" else {}
    if state.output == "table":
        _print(answer, names)
    else:
        emit(answer.document(), state.output, ())
    require_proceeding(answer)


@click.command()
@click.argument("channel")
@click.argument("refs", nargs=-1, required=True)
@click.option("--expect", metavar="gN", help="Refuse unless this is the head; g0 for a new channel.")
@click.option("--reason", default="release", show_default=True, help="A reason code.")
@output_option
@pass_state
def publish(state: State, channel: str, refs: tuple[str, ...], expect: str | None, reason: str) -> None:
    """Append a generation to CHANNEL that serves REFS."""
    with state.registry() as registry:
        published = registry.publish(channel, refs, expect=generation(expect, "--expect"), reason=reason)
    _tell(state, published)


@click.command()
@click.argument("channel")
@click.option("--to", metavar="gN", help="Generation to restore; default: the one before the head.")
@click.option("--expect", metavar="gN", help="Refuse unless this is the head.")
@click.option("--reason", default="rollback", show_default=True, help="A reason code.")
@output_option
@pass_state
def rollback(state: State, channel: str, to: str | None, expect: str | None, reason: str) -> None:
    """Append a generation to CHANNEL that serves an earlier tuple again."""
    with state.registry() as registry:
        published = registry.rollback(
            channel, to=generation(to, "--to"), expect=generation(expect, "--expect"), reason=reason
        )
    _tell(state, published)


def _print(answer: Admitted, names: Mapping[Digest, str]) -> None:
    out = console()
    out.print(decision_table(answer, names))
    if answer.measurement is not None:
        out.print(ledger_table(answer.measurement))
    if answer.plan is not None:
        out.print_json(data=answer.plan)
    if answer.candidate is not None:
        word = "admitted" if answer.created else "already admitted"
        click.echo(f"{word}: candidate {answer.name}@{answer.version}  {short(answer.candidate)}")
    if answer.composition is not None:
        word = "composed" if answer.created else "already composed"
        click.echo(f"{word}: {answer.name}@{answer.version}  {short(answer.composition)}")
        click.echo(f"output adapter: {short(answer.output or '')}")


def _tell(state: State, published: Published) -> None:
    restored = f", restores g{published.restored}" if published.restored is not None else ""
    lines = [
        f"{published.channel}@g{published.generation}: {', '.join(published.refs)} ({published.reason}{restored})",
        f"publication {short(published.publication)}  kv_identity {short(published.kv_identity)}",
    ]
    emit(published.document(), state.output, lines)


COMMANDS: Final = (admit, publish, rollback)
