"""Commands in processes that have everything imported, so that a kill lands in the work and not in imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).parents[2]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


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
    """The process that forks once a command (`tests.support.warmed_process`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warmed_process"],
            cwd=REPOSITORY,
            env=os.environ | _ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Ended:
        """One command to its end."""
        return self.run_at_once([arguments], environment, folder)[0]

    def run_at_once(
        self, commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path
    ) -> tuple[Ended, ...]:
        """Commands that start together, each in a process of its own."""
        return self._ask(commands, environment, folder, None)

    def kill(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, after_s: float) -> Ended:
        """One command, sent SIGKILL after so many seconds."""
        return self._ask([arguments], environment, folder, after_s)[0]

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self, commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path, after_s: float | None
    ) -> tuple[Ended, ...]:
        request = {
            "commands": [list(arguments) for arguments in commands],
            "environment": dict(environment),
            "folder": str(folder),
            "kill_after_s": after_s,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return tuple(Ended(**item) for item in self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())
