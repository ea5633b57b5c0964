"""The pages that follow from the program itself: `python -m tests.docs.reference` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from registry.app import cli
from registry.cli.methods import lines
from registry.service.explain import notes
from schemas.catalogue import Failure, failures
from schemas.catalogue.methods import Method, methods
from validators import CODES

ROOT: Final = Path(__file__).parents[2]
WIDTH: Final = 100


def codes_page() -> str:
    """Every code a finding may carry, and every other."""
    findings = (_code(code) for code in sorted(CODES))
    return "\n\n".join([_CODES_HEAD, *findings, f"{_NOTES_HEAD}\n{_notes()}"]) + "\n"


def failures_page() -> str:
    """Every failure of the catalogue."""
    return "\n\n".join([_FAILURES_HEAD, *(_failure(failure) for failure in failures())]) + "\n"


def methods_page() -> str:
    """Every row of the method catalogue."""
    return "\n\n".join([_METHODS_HEAD, *(_method(row) for row in methods().values())]) + "\n"


def cli_page() -> str:
    """The help of every command."""
    return "\n\n".join([_CLI_HEAD, *_helps(cli, "registry", None)]) + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "docs/reference/codes.md": codes_page,
    "docs/reference/failures.md": failures_page,
    "docs/reference/cli.md": cli_page,
    "docs/reference/methods.md": methods_page,
}

_CODES_HEAD: Final = """# Codes

What `registry admit` may find, and `registry explain CODE` prints. `refuse` stops a composition, `condition` stops it
until the spec acknowledges the code by name, `note` is for the reader. Codes are stable. Made by
`python -m tests.docs.reference`.

Errors outside a decision (a file that cannot be read, a name that is taken, a stale head) carry codes of their own and
say what was expected, what was found and how to repair it on the spot; they stand in the table at the end."""

_NOTES_HEAD: Final = """## Codes that are no findings

| code | what it means | who repairs it | how |
| --- | --- | --- | --- |"""

_FAILURES_HEAD: Final = """# Recorded failures

What breaks, what notices it, who repairs it and what stays unproven afterwards; `registry explain NAME` prints one.
The families `variants`, `conditional` and `routed` come from the documents (a section names the place), `registry` is
our own. Every injected fault is executed by a test. Recovered means that the invariant holds again, the named test
passes, and nothing more is claimed than before. Made by `python -m tests.docs.reference`."""

_METHODS_HEAD: Final = """# Methods

What every key of the catalogue names, and `registry method show KEY` prints. Paper and pinned code have a row each
where they differ. Executed claims name the check of an oracle that computes them; what no source fixes is not
verified. Made by `python -m tests.docs.reference`."""

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
            f"| failure | [{record.failure}](failures.md#{record.failure}) |",
        ]
    )


def _notes() -> str:
    return "\n".join(f"| {code} | {note.means} | {who} | {note.repair} |" for code, (who, note) in notes().items())


def _failure(failure: Failure) -> str:
    given = ", ".join(failure.documented) or "nothing"
    injected = f" `{failure.inject.field}` = `{json.dumps(failure.inject.value)}`" if failure.inject else ""
    detector = f"`{failure.detector}` of oracle {failure.oracle}" if failure.oracle else f"`{failure.detector}`"
    return "\n".join(
        [
            f"## {failure.id}",
            "",
            "| | |",
            "| --- | --- |",
            f"| family | {failure.family}, {failure.source}, which gives {given} |",
            f"| what must hold | {failure.invariant} |",
            f"| fault | {failure.fault}{injected} |",
            f"| detected by | {detector} |",
            f"| otherwise | {failure.consequence} |",
            f"| who repairs it | {failure.owner} |",
            f"| repair | {failure.recovery} |",
            f"| proof of recovery | `{failure.test}` |",
            f"| until then | {failure.gate} |",
            f"| stays unproven | {failure.limit} |",
        ]
    )


def _method(row: Method) -> str:
    cells = (f"| {label} | {text.replace('|', '&#124;')} |" for label, text in lines(row))
    return "\n".join([f"## {row.key}", "", row.name, "", "| | |", "| --- | --- |", *cells])


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
