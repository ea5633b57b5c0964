"""``python -m tests.support.forks_process NAME`` says ``ready``, then forks a process for each command it is sent.

It has one thread and no open database, which is what makes forking it safe. One answer before the first fork fills the
caches that every server would fill for itself. A keeper stands between it and each command: it reports the command's
number, waits for its end and reports the exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory

from fastapi.testclient import TestClient

import registry
from registry.api.serving import Serving
from registry.settings import Settings
from registry.wiring import initialise, opened
from tests.support.databases import stop_with_parent
from tests.support.forks import address

USED = ("psycopg", "uvicorn.lifespan.on", "uvicorn.loops.auto")
"""What the program loads besides its own modules."""
APART = "registry.cli.demo.peft_check"
"""A program of its own, which takes long to load."""
LONGEST = 2**17
"""Bytes of a request; most of it is the environment."""


LEAVING = [1]
"""The exit code, at the end of the list: 1 unless the command says otherwise."""


@atexit.register
def leave() -> None:
    """Runs last of what runs at the end, and spares a command to take down what it never used: half a second each."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LEAVING[-1])


def warm() -> None:
    """Load every module, and answer one request over a registry that is gone afterwards."""
    own = {found.name for found in walk_packages(registry.__path__, "registry.")}
    for name in (*USED, *sorted(own - {APART})):
        import_module(name)
    with redirect_stdout(sys.stderr), TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder, "home"))
        initialise(settings)
        with opened(settings) as context, TestClient(Serving(settings, jobs=False).application(context)) as client:
            assert client.get("/v1/tokens").status_code == 401
    gc.collect()
    gc.freeze()


def serve(name: str) -> None:
    """Fork until killed; in a forked process this returns."""
    warm()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "forking a process with threads is not safe"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address(name))
        listener.listen(64)
        print("ready", flush=True)
        while True:
            line, _ = listener.accept()
            with line:
                if os.fork() == 0:
                    listener.close()
                    return keep(line)


def keep(line: socket.socket) -> None:
    """Fork a command and report of it; in the command's process this returns when the command has."""
    stop_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, descriptors, _, _ = socket.recv_fds(line, LONGEST, 3)
    child = os.fork()
    if child == 0:
        line.close()
        return become(descriptors, **json.loads(message))
    for descriptor in descriptors:
        os.close(descriptor)
    line.send(str(child).encode())
    _, status = os.waitpid(child, 0)
    line.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(
    descriptors: list[int], program: str, arguments: list[str], environment: dict[str, str], folder: str
) -> None:
    """Be the `registry` command, or another module with a `main`."""
    stop_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for descriptor, target in zip([os.open(os.devnull, os.O_RDONLY), *descriptors[:2]], (0, 1, 2), strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for gate in descriptors[2:]:
        os.read(gate, 1)
        os.close(gate)
    sys.argv = ["registry", *arguments]
    try:
        import_module(program).main()
    except SystemExit as end:
        LEAVING.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    LEAVING.append(0)


if __name__ == "__main__":
    serve(sys.argv[1])
