"""A folder in which the commands of one page run, one after another, as a reader would type them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from click.testing import CliRunner, Result

from registry.app import cli
from tests.docs.page import Command
from tests.support.forks import PRIVATE
from tests.support.served import Server, started

ASSIGNMENT: Final = re.compile(r"(?:export )?(?P<name>[A-Z_]+)=(?P<value>.+)")
UNSET: Final = re.compile(r"unset (?P<name>[A-Z_]+)")
SHELL: Final = re.compile(r"[|<>&;]|\$\(")
ROOT: Final = Path(__file__).parents[2]
START_S: Final = 180.0


class Session:
    """Variables, the last exit code, background servers, and what stands for what.

    `places` maps texts of the page (a port, a server's address) to those of this machine. `registry …` runs in this
    process, everything else in bash.
    """

    def __init__(self, folder: Path, places: Mapping[str, str], programs: Path) -> None:
        self.folder = folder
        self._places = dict(places)
        self._code = 0
        self._servers: list[Server] = []
        path = [str(Path(sys.executable).parent), str(programs), os.environ["PATH"]]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(PRIVATE)}
        (folder / "home").mkdir()
        self._environment = {
            **kept, "PATH": ":".join(path), "HOME": str(folder / "home"), "PWD": str(folder), "PYTHONPATH": str(ROOT),
            "REGISTRY_PRINCIPAL": "you",
        }  # fmt: skip
        (folder / "tests").symlink_to(ROOT / "tests")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        for server in self._servers:
            server.send_signal(signal.SIGTERM)
            server.wait(START_S)

    def write(self, name: str, text: str) -> None:
        """A file the page shows."""
        (self.folder / name).write_text(text, encoding="utf-8")

    @property
    def failed(self) -> bool:
        """Whether the last command failed."""
        return self._code != 0

    def run(self, command: Command) -> str:
        """Run one command and return what it writes, in the page's own words."""
        line = self._here(command.line)
        if line == "echo $?":
            code, self._code = self._code, 0
            return str(code)
        if match := UNSET.fullmatch(line):
            self._environment.pop(match["name"])
            return ""
        if line.endswith(" &"):
            self._serve(shlex.split(line.removesuffix(" &")))
            return ""
        if match := ASSIGNMENT.fullmatch(line):
            return self._there(self._assign(match["name"], match["value"]))
        if _is_registry(line):
            return self._there(self._registry(line).output)
        done = self._bash(line)
        return self._there(done.stdout + done.stderr)

    def _assign(self, name: str, value: str) -> str:
        """Set a variable; what the command says on stderr is what the reader sees."""
        inner = value.removeprefix("$(").removesuffix(")")
        if value == f"$({inner})" and _is_registry(inner):
            answered = self._registry(inner)
            value, said = answered.stdout, answered.stderr
        else:
            done = self._bash(f"printf %s {value}")
            value, said = done.stdout, done.stderr
        self._environment[name] = value.strip()
        return said

    def _registry(self, line: str) -> Result:
        arguments = shlex.split(Template(line).substitute(self._environment))[1:]
        environment: dict[str, str | None] = {key: None for key in os.environ if key.startswith(PRIVATE)}
        environment |= self._environment
        with contextlib.chdir(self.folder):
            result = CliRunner().invoke(cli, arguments, prog_name="registry", env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self._code = result.exit_code
        return result

    def _bash(self, line: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )
        self._code = done.returncode
        return done

    def _serve(self, words: list[str]) -> None:
        with (self.folder / "server.log").open("wb") as log:
            server = started(words[1:], self._environment, self.folder, log.fileno(), log.fileno())
        self._servers.append(server)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert server.poll() is None, (self.folder / "server.log").read_text()
            try:
                with urlopen(f"http://127.0.0.1:{words[words.index('--port') + 1]}/healthz", timeout=1):
                    return
            except (URLError, TimeoutError):
                time.sleep(0.1)
        raise AssertionError("the server did not start")

    def _here(self, text: str) -> str:
        for page, machine in self._places.items():
            text = text.replace(page, machine)
        return text

    def _there(self, text: str) -> str:
        for page, machine in self._places.items():
            text = text.replace(machine, page)
        for folder in (self.folder.resolve(), self.folder):
            text = text.replace(str(folder), "/home/you")
        return text


def _is_registry(line: str) -> bool:
    return line.startswith("registry ") and SHELL.search(line) is None


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
