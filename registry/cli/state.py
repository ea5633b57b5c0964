"""What every command shares: settings, the chosen output, errors told once and in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from registry.cli.output import Format
from registry.errors import Problem, ProblemError, UsageProblemError
from registry.settings import Settings, load_settings

if TYPE_CHECKING:
    from registry.client import Registry

F = TypeVar("F", bound=Callable[..., Any])


HERE: Final = frozenset({"home", "database_url", "store_url", "principal", "workers", "memory_limit"})
"""Flags that say something of a registry on this machine alone."""


@dataclass
class State:
    """Filled while click parses: global flags first, then the command's `-o`."""

    flags: dict[str, Any] = field(default_factory=dict)
    output: Format = "table"

    @property
    def settings(self) -> Settings:
        """Flags over environment, files and defaults."""
        flags = dict(self.flags)
        file = flags.pop("token_file", None)
        return load_settings(flags if file is None else {**flags, "token": _token_in(file)})

    @property
    def local(self) -> Settings:
        """The same for a command that works on the registry of this machine.

        Raises:
            UsageProblemError: `URL_GIVEN`; the command would not do what it says to the server that was meant.
        """
        settings = self.settings
        if settings.url:
            hint = "Run it where the registry is: with --url '', or with REGISTRY_URL unset."
            raise UsageProblemError(_problem("URL_GIVEN", "a registry on this machine", "a server's address", hint))
        return settings

    @contextmanager
    def registry(self) -> Iterator[Registry]:
        """The registry these settings point at. Raises UsageProblemError `PLACE_AMBIGUOUS`."""
        settings = self.settings
        here = sorted(HERE & self.flags.keys())
        if settings.url and here:
            flag = f"--{here[0].replace('_', '-')}"
            hint = f"Leave {flag} out to ask the server, or give --url '' for a registry here."
            raise UsageProblemError(_problem("PLACE_AMBIGUOUS", "one registry", f"a server's address and {flag}", hint))
        from registry.client.connect import connect  # heavy: not every command looks into a registry

        with connect(settings) as registry:
            yield registry


class Commands(click.Group):
    """A group that turns typed errors into a message on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ProblemError as error:
            from registry.cli.exits import exit_code, tell  # heavy: most commands succeed

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


def _token_in(file: Path) -> str:
    """The token in a file; the file's mode is the owner's affair."""
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        observed = f"{file}: {getattr(error, 'strerror', None) or 'no text'}"
        hint = "Put what `registry token create` prints into a file, and name that."
        raise UsageProblemError(_problem("TOKEN_FILE_UNREADABLE", "a file with a token", observed, hint)) from error


def _problem(code: str, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=expected, observed=observed, hint=hint)
