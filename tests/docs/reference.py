"""The pages that follow from the program itself: `python -m tests.docs.reference` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from registry.app import cli
from validators import CODES

ROOT: Final = Path(__file__).parents[2]
WIDTH: Final = 100


def codes_page() -> str:
    """Every code a finding may carry."""
    return "\n\n".join([_CODES_HEAD, *(_code(code) for code in sorted(CODES))]) + "\n"


def cli_page() -> str:
    """The help of every command."""
    return "\n\n".join([_CLI_HEAD, *_helps(cli, "registry", None)]) + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {"docs/reference/codes.md": codes_page, "docs/reference/cli.md": cli_page}

_CODES_HEAD: Final = """# Finding codes

What `registry admit` may find, and `registry explain CODE` prints. `refuse` stops a composition, `condition` stops it
until the spec acknowledges the code by name, `note` is for the reader. Codes are stable. Made by
`python -m tests.docs.reference`.

Errors outside a decision (a file that cannot be read, a name that is taken, a stale head) carry codes of their own and
say what was expected, what was found and how to repair it on the spot; they are not listed here."""

_CLI_HEAD: Final = """# Commands

The help of every command, as `registry COMMAND --help` prints it. Made by `python -m tests.docs.reference`."""


def _code(code: str) -> str:
    record = CODES[code]
    return "\n".join(
        [
            f"## {code}",
            "",
            "| | |",
            "| --- | --- |",
            f"| severity | {record.severity} |",
            f"| predicate | P_{record.predicate} |",
            f"| coordinate | {record.coordinate}, becomes `{record.status}` |",
            f"| what must hold | {record.invariant} |",
            f"| otherwise | {record.consequence} |",
            f"| repair | {record.recovery} |",
            f"| who repairs it | {record.owner} |",
        ]
    )


def _helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    words = name if parent is None else f"{parent.command_path} {name}"
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    with click.Context(command, parent, info_name=name, **settings) as context:
        yield f"## {words}\n\n```text\n{command.get_help(context).rstrip()}\n```"
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                assert found is not None
                yield from _helps(found, child, context)


def main() -> None:
    """Write the pages."""
    for path, page in PAGES.items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
