"""Arguments that several commands take."""

from __future__ import annotations

from os import PathLike
from typing import IO, Any

import click

from registry.errors import Problem, UsageProblemError


class ReadFile(click.File):
    """A file to be read, - for stdin; one that cannot be is told as every other error is."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(
        self, value: str | PathLike[str] | IO[Any], param: click.Parameter | None, ctx: click.Context | None
    ) -> IO[Any]:
        """Raises UsageProblemError `FILE_UNREADABLE`."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise UsageProblemError(
                Problem(
                    code="FILE_UNREADABLE",
                    expected="a readable file",
                    observed=error.message,
                    hint="Check the path and its permissions.",
                )
            ) from error


def generation(text: str | None, option: str) -> int | None:
    """The number of `gN`; the option names itself where it is written otherwise."""
    if text is None:
        return None
    number = text.removeprefix("g")
    if not number.isascii() or not number.isdigit() or len(number) > 15:
        raise click.BadParameter("write gN, such as g41", param_hint=option)
    return int(number)
