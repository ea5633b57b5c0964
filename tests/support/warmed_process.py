"""``python -m tests.support.warmed_process`` says ``ready``, then answers one JSON line a request line.

It has one thread and opens no database, which is what makes forking it safe. The imports are all that a command needs,
torch included.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import psycopg  # noqa: F401 - so that no command imports it while it runs

import registry.worker.composer  # noqa: F401
from registry.cli.main import cli
from tests.support.warmed import Ended

CRASHED = 70


def serve() -> None:
    """Answer requests until the input ends."""
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "forking a process with threads is not safe"
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps([asdict(ended) for ended in run(**json.loads(line))]), flush=True)


def run(commands: list[list[str]], environment: dict[str, str], folder: str, kill_after_s: float | None) -> list[Ended]:
    """Fork a process a command, let all start together, kill them if asked, and wait for all."""
    gate, opener = os.pipe()
    places = [Path(folder, f"command-{number}") for number in range(len(commands))]
    children: dict[int, int] = {}
    for number, arguments in enumerate(commands):
        child = os.fork()
        if child == 0:
            os.close(opener)
            os.read(gate, 1)  # ends when every other holder has closed its end
            become(arguments, environment, places[number])
        children[child] = number
    os.close(gate)
    os.close(opener)
    started = time.monotonic()
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        for child in children:
            os.kill(child, signal.SIGKILL)  # not yet waited for, so the number is still its own
    ended: dict[int, Ended] = {}
    while children:
        child, status = os.wait()
        number = children.pop(child)
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        place = places[number]
        ended[number] = Ended(code, time.monotonic() - started, text(place, "out"), text(place, "err"))
    return [ended[number] for number in range(len(commands))]


def become(arguments: list[str], environment: dict[str, str], place: Path) -> None:
    """Run the command and leave the process with its exit code."""
    code: str | int | None = CRASHED
    try:
        os.environ |= environment
        os.chdir(place.parent)
        redirect(place)
        cli(arguments, prog_name="registry")
    except SystemExit as end:
        code = end.code
    finally:
        if code == CRASHED:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def redirect(place: Path) -> None:
    """Standard streams: nothing in, files out."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name, target in (("out", 1), ("err", 2)):
        os.dup2(os.open(place.with_suffix(f".{name}"), flags, 0o644), target)


def text(place: Path, name: str) -> str:
    """What a command wrote before it ended."""
    file = place.with_suffix(f".{name}")
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    serve()
