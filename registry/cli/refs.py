"""References that only the command line writes."""

from __future__ import annotations

import click


def generation(text: str | None, option: str) -> int | None:
    """The number of `gN`; the option names itself where it is written otherwise."""
    if text is None:
        return None
    number = text.removeprefix("g")
    if not number.isascii() or not number.isdigit() or len(number) > 15:
        raise click.BadParameter("write gN, such as g41", param_hint=option)
    return int(number)
