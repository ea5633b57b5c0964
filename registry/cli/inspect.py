"""`registry inspect`: everything about a directory without registering it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from registry.cli.output import emit
from registry.cli.state import State, output_option, pass_state
from registry.service.inspect import inspect_directory
from registry.service.inspected import Fault, Group, Inspected

MOST: Final = 12
"""Problems and groups that a screen shows; `-o json` has them all."""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--base", metavar="REF|DIR", help="Hold an adapter against this base: a directory, or registered.")
@output_option
@pass_state
def inspect(state: State, directory: Path, base: str | None) -> None:
    """Tell what the adapter or base in DIRECTORY is, without registering it.

    Without a base, names, shapes and completeness cannot be checked; everything else is told.
    """
    if base is None or Path(base).is_dir():
        found = inspect_directory(directory, None if base is None else Path(base))
    else:
        with state.registry() as registry:
            found = registry.inspect(directory, base)
    emit(found.document(), state.output, _lines(found))


def _lines(found: Inspected) -> Iterator[str]:
    yield f"{found.kind}  {found.directory}"
    width = max((len(key) for key in found.facts), default=0)
    yield from (f"  {key:<{width}}  {value}" for key, value in found.facts.items())
    yield from _cut("factors", [_factor(group) for group in found.groups])
    yield from _cut("beside factors", [f"  {name}  {what}" for name, what in found.parts.items()])
    yield from _cut("surprises", [f"  {_coded(item.code, item.figure)}  {item.means}" for item in found.surprises])
    yield from _cut("would be refused", [line for item in found.problems for line in _fault(item)])
    if found.kind == "adapter":
        yield f"may enter: {', '.join(found.lanes) or 'no lane as it is'}"


def _factor(group: Group) -> str:
    where = f" layers {group.layers}" if group.layers else ""
    extra = f" with {', '.join(group.extra)}" if group.extra else ""
    order = f" {group.order}" if group.order not in (None, "B@A") else ""
    scale = f"scale {group.scale:.6g} ({group.rule.replace('_', ' ')}, alpha {group.alpha:.6g})"
    form = f"{order}{extra}, {group.shapes} {group.dtype}"
    return f"  {group.count} x {group.module}{where}: rank {group.rank}, {scale}{form}"


def _coded(code: str, figure: float | None) -> str:
    return code if figure is None else f"{code} {figure:g}"


def _fault(item: Fault) -> tuple[str, ...]:
    return (f"  {item.code} at {item.where}: expected {item.expected}, found {item.observed}", f"    {item.repair}")


def _cut(title: str, lines: list[str]) -> Iterator[str]:
    """A titled block, at most a screen long."""
    if lines:
        yield title
        yield from lines[: 2 * MOST]
    if len(lines) > 2 * MOST:
        yield f"  … {len(lines) - 2 * MOST} more lines; -o json shows all"


COMMANDS: Final = (inspect,)
