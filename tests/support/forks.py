"""`registry` commands and servers that start at once: each is forked from a process that has everything imported.

They are processes like any other, with a number, signals, streams and an exit code of their own.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from uuid import uuid4

from tests.support.databases import stop_with_parent

REPOSITORY = Path(__file__).parents[2]
PRIVATE = ("REGISTRY_", "AWS_")
"""What the environment of the tests says of a registry is not for the commands."""
PATIENCE_S = 120.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Forked:
    """A running command; what it offers means what it means for `subprocess.Popen`."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._line.settimeout(PATIENCE_S)
        self.pid = int(line.recv(32))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        if self.returncode is None and select.select([self._line], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int(self._line.recv(32))
            except TimeoutError as error:
                raise subprocess.TimeoutExpired("registry", timeout or 0.0) from error
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Forks:
    """The process that commands are forked from (`tests.support.forks_process`)."""

    def __init__(self) -> None:
        self._name = f"registry-forks-{uuid4()}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks_process", self._name],
            cwd=REPOSITORY,
            env=public() | _ONE_THREAD,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=stop_with_parent,
        )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            assert said.readline() == "ready\n"

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        stdout: int,
        stderr: int,
        gate: int | None = None,
        program: str = "registry.app",
    ) -> Forked:
        """`registry` with these arguments, its output going to file descriptors; it begins when the gate is closed.

        Another `program` is a module whose `main` is called in its place.
        """
        request = {
            "program": program,
            "arguments": list(arguments),
            "environment": {**public(), **environment},
            "folder": str(folder),
        }
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.connect(address(self._name))
        given = [stdout, stderr] if gate is None else [stdout, stderr, gate]
        socket.send_fds(line, [json.dumps(request).encode()], given)
        return Forked(line)

    def close(self) -> None:
        """Let the process end, and every command with it."""
        self._process.terminate()
        self._process.wait()


def address(name: str) -> str:
    """Of a socket that leaves no file behind."""
    return f"\0{name}"


def public() -> dict[str, str]:
    """The environment without what it says of a registry."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}


@cache
def forks() -> Forks:
    """The one of this test process, made when first asked for."""
    made = Forks()
    atexit.register(made.close)
    return made
