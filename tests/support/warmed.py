"""Commands in processes that have everything imported, so that a kill lands in the work and not in imports."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
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


class Warmed:
    """Runs commands, writing what they say to files in their folder."""

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Ended:
        """One command to its end."""
        return self.run_at_once([arguments], environment, folder)[0]

    def run_at_once(
        self, commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path
    ) -> tuple[Ended, ...]:
        """Commands that start together, each in a process of its own."""
        return _run(commands, environment, folder, None)

    def kill(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, after_s: float) -> Ended:
        """One command, sent SIGKILL after so many seconds."""
        return _run([arguments], environment, folder, after_s)[0]


def _run(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path, kill_after_s: float | None
) -> tuple[Ended, ...]:
    places = [folder / f"command-{number}" for number in range(len(commands))]
    gate, opener = os.pipe()
    running = [_start(arguments, environment, place, gate) for arguments, place in zip(commands, places, strict=True)]
    os.close(gate)
    os.close(opener)
    began = time.monotonic()
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        for each in running:
            each.send_signal(signal.SIGKILL)
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
