"""Progress bars on stderr; silent when stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def bytes_bar(label: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr over bytes, there from the first of them; silent when stderr is no terminal."""
    with _bar(label, DownloadColumn()) as progress:
        task = progress.add_task(label, total=None, visible=False)
        yield lambda count: progress.update(task, advance=count, visible=True)


@contextmanager
def counts_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar over so many things."""
    with _bar(label, MofNCompleteColumn()) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def steps_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over modules done."""
    with _bar(label, MofNCompleteColumn()) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _bar(label: str, counter: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(), counter, TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
