"""`registry oracle list|run`."""

from __future__ import annotations

from typing import BinaryIO, Final

import click

from registry.cli.output import emit_rows
from registry.cli.refs import ReadFile
from registry.cli.state import State, output_option, pass_state
from registry.errors import DigestMismatchError, Problem
from registry.service import witness as oracles


@click.group()
def oracle() -> None:
    """Executable proofs of the algebra each method relies on; they need no registry."""


@oracle.command("list")
@output_option
@pass_state
def list_(state: State) -> None:
    """Every oracle, its source and what it proves."""
    rows = [item.document() for item in oracles.listed()]
    emit_rows(rows, state.output, ("name", "source", "sections"))


@oracle.command("run")
@click.argument("names", nargs=-1)
@click.option("--mutations", is_flag=True, help="Also change every fixture field and see each change caught.")
@output_option
@pass_state
def run(state: State, names: tuple[str, ...], mutations: bool) -> None:
    """Replay the named oracles, or all; exit 7 when one fails a check or differs from its lock."""
    found = oracles.run(names, mutations=mutations)
    columns = ("name", "checks", "worst_error", "mutations", "rejected", "without_role", "semantic", "seconds")
    emit_rows([item.document() for item in found], state.output, columns)
    failed = [(item.name, check) for item in found for check in item.failed]
    if failed:
        raise DigestMismatchError(*(_failed(name, check) for name, check in failed))


@oracle.command("report")
@click.argument("name")
def report(name: str) -> None:
    """Write the report of an oracle to stdout, to be kept and checked later."""
    click.echo(oracles.report_bytes(name), nl=False)


@oracle.command("check")
@click.argument("name")
@click.argument("file", type=ReadFile())
@output_option
@pass_state
def check(state: State, name: str, file: BinaryIO) -> None:
    """Replay an oracle and hold a report FILE against it; exit 7 when fixture, program or report changed."""
    found = oracles.check(name, file.read())
    emit_rows([found.document()], state.output, ("name", "checks", "semantic", "report"))


def _failed(name: str, check: str) -> Problem:
    hint = "Look the check up on the results page; the program or the fixture is wrong."
    return Problem(code="ORACLE_CHECK_FAILED", path=(name,), expected=check, observed="another value", hint=hint)


COMMANDS: Final = (oracle,)
