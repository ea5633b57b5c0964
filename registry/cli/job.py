"""`registry job ls|show|cancel|wait`."""

from __future__ import annotations

from typing import Final, get_args

import click

from registry.cli.bars import steps_bar
from registry.cli.output import emit, emit_rows
from registry.cli.state import State, output_option, pass_state
from registry.client.remote.jobs import done
from registry.service.jobs import Job, Status

COLUMNS: Final = ("id", "kind", "status", "principal", "created", "updated", "attempts")


@click.group()
def job() -> None:
    """Work that a server or a worker does: compositions, conversions, exports."""


@job.command("ls")
@click.option("--status", type=click.Choice(get_args(Status)), help="Only jobs in this state.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--after", metavar="TOKEN", help="Continue a list.")
@output_option
@pass_state
def ls(state: State, status: Status | None, limit: int, after: str | None) -> None:
    """List jobs, newest first."""
    with state.registry() as registry:
        page = registry.jobs(status, after, limit)
    emit_rows([item.document() for item in page.items], state.output, COLUMNS)
    if page.next is not None:
        click.echo(f"more: --after {page.next}", err=True)


@job.command()
@click.argument("job_id")
@output_option
@pass_state
def show(state: State, job_id: str) -> None:
    """Where JOB_ID stands, and what came of it."""
    with state.registry() as registry:
        _tell(state, registry.job(job_id))


@job.command()
@click.argument("job_id")
@output_option
@pass_state
def cancel(state: State, job_id: str) -> None:
    """Call JOB_ID off; its worker stops soon and nothing of it is kept."""
    with state.registry() as registry:
        _tell(state, registry.cancel_job(job_id))


@job.command()
@click.argument("job_id")
@output_option
@pass_state
def wait(state: State, job_id: str) -> None:
    """Wait until JOB_ID has ended; one that failed or was cancelled ends this command as its error says."""
    with state.registry() as registry, steps_bar("job") as progress:

        def look(seen: Job) -> None:
            if seen.progress is not None:
                progress(int(str(seen.progress["done"])), int(str(seen.progress["total"])))

        ended = registry.wait_job(job_id, look)
    _tell(state, ended)
    done(ended)


def _tell(state: State, found: Job) -> None:
    lines = [f"{found.id}  {found.kind}  {found.status}  {found.principal}  attempts {found.attempts}"]
    if found.open and found.progress is not None:
        lines.append(f"  {found.progress['done']} of {found.progress['total']} {found.progress['what']}")
    if found.error is not None:
        lines.append(f"  {found.error['code']}")
    made = found.result or {}
    lines += [f"  {key}: {made[key]}" for key in ("composition", "conversion", "adapter", "output") if made.get(key)]
    emit(found.document(), state.output, lines)


COMMANDS: Final = (job,)
