"""Markdown pages with runnable fences: what they contain, and whether an output is the expected one.

A ```console fence holds `$ command` lines with the output below each; a line ending in a backslash goes on. In an
expected output `...` stands for anything, on a line of its own for any number of lines. A fence whose info string names
a file (```yaml support.yaml) is written to the working folder. Installation commands stand in ```sh fences and are not
run: they would build the environment that the tests run in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

FENCE: Final = re.compile(r"^```(?P<language>[a-z]+)(?: (?P<file>\S+))?\n(?P<body>.*?)^```$", re.M | re.S)
PROMPT: Final = "$ "


@dataclass(frozen=True)
class Fence:
    """One fenced block and where its body lies in the page."""

    language: str
    file: str | None
    body: str
    start: int
    end: int


@dataclass
class Command:
    """A command and the output the page promises."""

    text: str
    shown: str
    expected: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The command on one line."""
        return self.text.replace("\\\n", " ")


def fences(page: str) -> Iterator[Fence]:
    """All fenced blocks, in order."""
    for match in FENCE.finditer(page):
        yield Fence(match["language"], match["file"], match["body"], match.start("body"), match.end("body"))


def commands(body: str) -> list[Command]:
    """The commands of a console fence."""
    found: list[Command] = []
    lines = iter(body.splitlines())
    for line in lines:
        if not line.startswith(PROMPT):
            assert found, f"a console fence starts with a command, not with {line!r}"
            found[-1].expected.append(line)
            continue
        shown = [line]
        while shown[-1].endswith("\\"):
            shown.append(next(lines))
        found.append(Command("\n".join(shown).removeprefix(PROMPT), "\n".join(shown)))
    return found


def tidy(output: str) -> list[str]:
    """Lines without the spaces that tables leave at their ends, and without empty lines at either end."""
    return "\n".join(line.rstrip() for line in output.splitlines()).strip("\n").splitlines()


def matches(expected: list[str], observed: list[str]) -> bool:
    """Whether an output is what the page promises."""
    parts = (r"(?:.*\n)*" if line.strip() == "..." else f"{_elided(line)}\n" for line in expected)
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in observed)) is not None


def _elided(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("..."))
