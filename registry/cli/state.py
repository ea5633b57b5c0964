"""What every command shares: settings, the chosen output, errors told once and in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from registry.cli.exits import exit_code, tell
from registry.cli.output import Format
from registry.client import Registry, connect
from registry.errors import ProblemError
from registry.settings import Settings, load_settings

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class State:
    """Filled while click parses: global flags first, then the command's `-o`."""

    flags: dict[str, Any] = field(default_factory=dict)
    output: Format = "table"

    @property
    def settings(self) -> Settings:
        """Flags over environment, files and defaults."""
        return load_settings(self.flags)

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """The registry these settings point at."""
        with connect(self.settings) as registry:
            yield registry


class Commands(click.Group):
    """A group that turns typed errors into a message on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ProblemError as error:
            tell(error, as_json=isinstance(ctx.obj, State) and ctx.obj.output != "table")
            ctx.exit(exit_code(error))


pass_state = click.make_pass_decorator(State)


def output_option(command: F) -> F:
    """`-o table|json|jsonl`, the only way to choose a format."""

    def remember(ctx: click.Context, _parameter: click.Parameter, value: Format) -> None:
        ctx.ensure_object(State).output = value

    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "jsonl"]),
        default="table",
        help="How data is written to stdout.",
        expose_value=False,
        callback=remember,
        is_eager=True,
    )(command)


@contextmanager
def bytes_bar(label: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr over bytes read; silent when stderr is no terminal."""
    with _bar(label, DownloadColumn()) as progress:
        task = progress.add_task(label, total=None)
        yield lambda count: progress.advance(task, count)


@contextmanager
def counts_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr over so many things."""
    with _bar(label, MofNCompleteColumn()) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def steps_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr over modules done."""
    with _bar(label, MofNCompleteColumn()) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _bar(label: str, counter: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(), counter, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
