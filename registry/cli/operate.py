"""Operating commands: `init`, `db`, `verify`, `worker`."""

from __future__ import annotations

import logging
import signal
from threading import Event
from typing import Final

import click

from registry.cli.output import emit
from registry.cli.state import State, output_option, pass_state
from registry.errors import DigestMismatchError, Problem
from registry.wiring import check_database, current_schema, initialise, job_queue, opened


@click.command()
@output_option
@pass_state
def init(state: State) -> None:
    """Create home, database and store; safe to repeat."""
    settings = state.local
    initialise(settings)
    where = {"database": settings.database, "store": settings.store}
    emit(dict(where), state.output, [f"{key}: {value}" for key, value in where.items()])


@click.group()
def db() -> None:
    """The database schema."""


@db.command()
@pass_state
def upgrade(state: State) -> None:
    """Bring the schema up to this program's version and install the guards again."""
    settings = state.local
    initialise(settings)
    click.echo(f"schema {current_schema(settings)}")


@db.command()
@pass_state
def current(state: State) -> None:
    """The schema revision of the database."""
    click.echo(current_schema(state.local) or "none")


@db.command()
@pass_state
def check(state: State) -> None:
    """Check schema revision, guards and integrity."""
    problems = check_database(state.local)
    if problems:
        raise DigestMismatchError(*problems)
    click.echo("schema and guards are in place")


@click.command()
@click.argument("ref", required=False)
@click.option(
    "--deep", is_flag=True, help="Re-hash every blob and tensor; compare referenced base files by size and time."
)
@click.option("--base-files", is_flag=True, help="Read referenced base files whole and re-hash them.")
@click.option("--recompute", is_flag=True, help="Compose again and compare.")
@click.option("--expect-head", metavar="HASH", help="The audit head you kept elsewhere.")
@output_option
@pass_state
def verify(
    state: State, ref: str | None, deep: bool, base_files: bool, recompute: bool, expect_head: str | None
) -> None:
    """Check what is stored against digests and audit chain; exit 7 when wrong."""
    with state.registry() as registry:
        found = registry.verify(ref, deep=deep, recompute=recompute, expect_head=expect_head, base_files=base_files)
    summary = (
        f"{found.manifests} manifests, {found.blobs} blobs, {found.tensors} tensors, "
        f"{found.audit_events} audit events checked; {len(found.faults)} faults"
    )
    emit(found.document(), state.output, [summary, f"audit head {found.head or '-'}"])
    if found.faults:
        raise DigestMismatchError(
            *(
                Problem(
                    code=fault.code,
                    path=(fault.subject,),
                    expected=fault.expected,
                    observed=fault.observed,
                    hint=fault.hint,
                )
                for fault in found.faults
            )
        )


@click.command()
@pass_state
def worker(state: State) -> None:
    """Run jobs that servers take in: any number of workers on one PostgreSQL, one process at a time on SQLite.

    The first SIGTERM or SIGINT lets what runs finish within ten seconds, or hands it back to the others.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    with opened(state.local) as context:
        queue = job_queue(context)
        queue.start()
        while queue.alive and not stop.wait(1.0):
            pass
        queue.stop()
    if not stop.is_set():
        raise SystemExit(1)


COMMANDS: Final = (init, db, verify, worker)
