"""Commands in processes that have everything imported, so that a kill lands in the work and not in imports."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.support.forks import Forked, forks


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (null when the kill found it running), seconds, and what it wrote."""

    exit: int | None
    seconds: float
    out: str
    err: str

    @property
    def killed(self) -> bool:
        """Whether it was still running."""
        return self.exit is None


Meanwhile = Callable[[Forked], None]
"""What is done while a command runs."""


def _nothing(_command: Forked) -> None:
    """Only wait."""


class Warmed:
    """Runs commands, writing what they say to files in their folder."""

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, meanwhile: Meanwhile = _nothing
    ) -> Ended:
        """One command to its end."""
        return _run([arguments], environment, folder, meanwhile)[0]

    def run_at_once(
        self, commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path
    ) -> tuple[Ended, ...]:
        """Commands that start together, each in a process of its own."""
        return _run(commands, environment, folder, _nothing)

    def kill(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, moment: Meanwhile) -> Ended:
        """One command, sent SIGKILL when `moment` returns."""

        def meanwhile(command: Forked) -> None:
            moment(command)
            command.send_signal(signal.SIGKILL)

        return self.run(arguments, environment, folder, meanwhile)


def _run(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path, meanwhile: Meanwhile
) -> tuple[Ended, ...]:
    places = [folder / f"command-{number}" for number in range(len(commands))]
    gate, opener = os.pipe()
    running = [_start(arguments, environment, place, gate) for arguments, place in zip(commands, places, strict=True)]
    os.close(gate)
    os.close(opener)
    began = time.monotonic()
    for each in running:
        meanwhile(each)
    return tuple(_ended(each, began, place) for each, place in zip(running, places, strict=True))


def _start(arguments: Sequence[str], environment: Mapping[str, str], place: Path, gate: int) -> Forked:
    with ExitStack() as stack:
        out, err = (stack.enter_context(place.with_suffix(end).open("wb")) for end in (".out", ".err"))
        return forks().start(arguments, environment, place.parent, stdout=out.fileno(), stderr=err.fileno(), gate=gate)


def _ended(command: Forked, began: float, place: Path) -> Ended:
    code = command.wait()
    seconds = time.monotonic() - began
    out, err = (place.with_suffix(end).read_text(encoding="utf-8") for end in (".out", ".err"))
    return Ended(code if code >= 0 else None, seconds, out, err)
