"""``python -m tests.support.forks_process`` says ``ready``, then starts and stops servers, a JSON line each.

It has one thread and no open database, which is what makes forking it safe. One answer before the first fork fills the
caches that every server would fill for itself.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from fastapi.testclient import TestClient

from registry.api.serving import Serving
from registry.app import cli
from registry.settings import Settings
from registry.wiring import initialise, opened
from tests.support.databases import stop_with_parent
from tests.support.warmed_process import redirect

USED = ("psycopg", "registry.worker.composer", "registry.worker.queue", "uvicorn.lifespan.on", "uvicorn.loops.auto")


def warm() -> None:
    """Answer one request over a registry that is gone afterwards."""
    for name in USED:
        import_module(name)
    with redirect_stdout(sys.stderr), TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder, "home"))
        initialise(settings)
        with opened(settings) as context, TestClient(Serving(settings, jobs=False).application(context)) as client:
            assert client.get("/v1/tokens").status_code == 401
    gc.collect()
    gc.freeze()


def serve() -> None:
    """Answer requests until the input ends."""
    warm()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "forking a process with threads is not safe"
    children: dict[str, int] = {}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "stop" in request:
            child = children.pop(request["stop"])
            os.kill(child, signal.SIGKILL)  # not yet waited for, so the number is still its own
            os.waitpid(child, 0)
        else:
            children[request["folder"]] = start(**request)
        print(json.dumps("done"), flush=True)


def start(environment: dict[str, str], folder: str, options: list[str]) -> int:
    """Fork a server; its process id."""
    child = os.fork()
    if child == 0:
        try:
            stop_with_parent()
            os.environ |= environment
            os.chdir(folder)
            redirect(Path(folder, "server"))
            cli(["serve", "--port", "0", "--log", "json", *options], prog_name="registry")
        finally:
            sys.stderr.flush()
            os._exit(1)
    return child


if __name__ == "__main__":
    serve()
