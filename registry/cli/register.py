"""`registry add base`, `registry add adapter`, `registry add adapters`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import click

from registry.cli.bars import bytes_bar, counts_bar
from registry.cli.output import emit, emit_rows
from registry.cli.state import State, output_option, pass_state
from registry.errors import UsageProblemError
from registry.service.results import Added
from schemas.errors import refuse
from schemas.names import short

WORTH_A_PROCESS: Final = 250
"""Adapters that take as long to read as a process to start."""

DIRECTORY: Final = click.Path(path_type=Path)
SOURCE: Final = click.Path()


@click.group()
def add() -> None:
    """Register a base, an adapter, or what surrounds them."""


@add.command("base")
@click.argument("source", type=SOURCE)
@click.option("--name", required=True, help="Name to register it under.")
@click.option("--store", is_flag=True, help="Copy the files into the store; default: reference them where they are.")
@click.option(
    "--evidence",
    type=click.Choice(["content", "structural", "declared"]),
    default="content",
    show_default=True,
    help="content hashes every tensor, structural reads headers, declared reads the configuration.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="Files hashed at a time.")
@click.option("--contract", "contracts", multiple=True, help="A registered compute contract of it; several times.")
@output_option
@pass_state
def add_base(
    state: State,
    source: str,
    name: str,
    store: bool,
    evidence: Literal["content", "structural", "declared"],
    jobs: int,
    contracts: tuple[str, ...],
) -> None:
    """Register a base model.

    SOURCE is a directory (config, tokenizer, safetensors), a GGUF file, or hub:OWNER/NAME[@REVISION], whose files are
    fetched and stored.
    """
    with state.registry() as registry, bytes_bar("hashing") as progress:
        added = registry.add_base(
            source, name, store=store, evidence=evidence, progress=progress, jobs=jobs, contracts=contracts
        )
    tell(state, added)


@add.command("adapter")
@click.argument("source", type=SOURCE)
@click.option("--base", required=True, help="The base it was trained on.")
@click.option("--name", required=True, help="Name to register it under.")
@output_option
@pass_state
def add_adapter(state: State, source: str, base: str, name: str) -> None:
    """Register an adapter against its base.

    SOURCE is a directory as its producer saved it, or hub:OWNER/NAME[@REVISION].
    """
    with state.registry() as registry, bytes_bar("sending") as progress:
        added = registry.add_adapter(source, base, name, progress=progress)
    tell(state, added)


@add.command("adapters")
@click.argument("directories", metavar="DIRECTORY...", nargs=-1, required=True, type=DIRECTORY)
@click.option("--base", required=True, help="The base all of them were trained on.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes that read; default: up to one a core, as it pays.")
@output_option
@pass_state
def add_adapters(state: State, directories: tuple[Path, ...], base: str, jobs: int | None) -> None:
    """Register the adapter in each DIRECTORY, under the name of that directory.

    Many are registered in one transaction. A directory that is refused is named at the end, with exit 3 (2 where no
    directory could be read), and stops no other; the command may be repeated.
    """
    jobs = jobs or min(os.cpu_count() or 1, 1 + len(directories) // WORTH_A_PROCESS)
    with state.registry() as registry, counts_bar("registering", len(directories)) as progress:
        done = registry.add_adapters(directories, base, jobs=jobs, progress=progress)
    rows = [{**added.document(), "ref": added.ref} for added in done.added]
    emit_rows(rows, state.output, ("ref", "digest", "created"))
    problems = [
        replace(problem, path=(str(item.directory), *problem.path))
        for item in done.refused
        for problem in item.error.problems
    ]
    if problems and all(isinstance(item.error, UsageProblemError) for item in done.refused):
        raise UsageProblemError(*problems)
    refuse(problems)


def tell(state: State, added: Added) -> None:
    """What was registered, and what to know about it."""
    word = "added" if added.created else "already held"
    lines = [f"{word}: {added.kind} {added.ref}  {short(added.digest)}"]
    conditions = added.notes.get("conditions")
    if isinstance(conditions, list):
        lines += [f"note: {code}" for code in conditions]
    emit(added.document(), state.output, lines)
