"""Data to stdout: a table for people, one JSON document, or one JSON document a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from rich.console import Console
from rich.table import Table

from schemas.canonical import JsonObject

Format = Literal["table", "json", "jsonl"]
PIPE_WIDTH: Final = 10_000
"""Columns of a table in a pipe: wider than any row, so that nothing is cut or wrapped."""


def console() -> Console:
    """Stdout; colours follow the terminal and NO_COLOR, and nothing is cut in a pipe."""
    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=PIPE_WIDTH)
    return out


def emit(document: JsonObject, output: Format, lines: Iterable[str]) -> None:
    """One result: its fields for programs, the given lines for people."""
    if output == "table":
        for line in lines:
            console().print(line, markup=False, soft_wrap=True)
    else:
        sys.stdout.write(json.dumps(document, indent=2 if output == "json" else None) + "\n")


def emit_rows(rows: Sequence[JsonObject], output: Format, columns: Sequence[str]) -> None:
    """Many results; the table shows `columns`, JSON shows everything."""
    if output == "json":
        sys.stdout.write(json.dumps(list(rows), indent=2) + "\n")
    elif output == "jsonl":
        sys.stdout.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.replace("_", " "), no_wrap=True)
        for row in rows:
            table.add_row(*(_cell(row.get(column)) for column in columns))
        console().print(table)


def _cell(value: object) -> str:
    if value is None or value is False:
        return "-"
    if value is True:
        return "yes"
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value) or "-"
    text = str(value)
    return text[:19] if text.startswith("blake3:") else text
