"""Servers that start at once: forked from a process that has everything imported, each over a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from tests.support.served import START_S

REPOSITORY = Path(__file__).parents[2]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Forks:
    """The process that forks a server each (`tests.support.forks_process`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks_process"],
            cwd=REPOSITORY,
            env=os.environ | _ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    @contextmanager
    def server(self, folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[str]:
        """The address of a server over the registry that the environment names; gone at the end, as if killed."""
        log = folder / "server.log"
        request = {"environment": dict(environment), "folder": str(folder), "options": list(options)}
        self._ask(request)
        try:
            yield self._address(folder / "server.out", log)
        finally:
            self._ask({"stop": str(folder)})

    def close(self) -> None:
        """Let the process and its servers end."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _address(self, out: Path, log: Path) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if out.exists() and (text := out.read_text(encoding="utf-8")).endswith("\n"):
                return text.strip()
            time.sleep(0.01)
        raise AssertionError(log.read_text(encoding="utf-8"))

    def _ask(self, request: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        assert self._answer() == "done"

    def _answer(self) -> object:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The process that servers are forked from."""
    with Forks() as made:
        yield made
