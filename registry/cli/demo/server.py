"""The server part of the demo: a real process, asked with curl."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from registry.cli.demo.steps import Shell
from registry.errors import Problem, UnavailableError

START_S = 30.0


def served(shell: Shell, adapters: Path) -> None:
    """Register an adapter twice and roll back over HTTP."""
    token = shell.output("token", "create", "demo", "--allow", "read", "--allow", "register", "--allow", "publish")
    with _server(shell) as url:
        adapter = adapters / "docs-lora"
        upload = ["-F", "name=docs-lora", "-F", "base=minilm"]
        for file in ("adapter_config.json", "adapter_model.safetensors"):
            upload += ["-F", f"files=@{adapter / file}"]
        for _ in range(2):
            _curl(shell, token, f"{url}/v1/adapters", *upload)
        back = ["-H", 'If-Match: "g3"', "-H", "Content-Type: application/json", "-d", json.dumps({"to": 2})]
        _curl(shell, token, f"{url}/v1/channels/support-bot/rollback", *back)


def _curl(shell: Shell, token: str, url: str, *arguments: str) -> None:
    """Run curl, with the token left out of what is shown."""
    shown = ["curl", "-H", "Authorization: Bearer $TOKEN", *arguments, url]
    header = f"Authorization: Bearer {token}"
    shell.run(shown, ["curl", "-sS", "--fail-with-body", "-w", "\n", "-H", header, *arguments, url])


@contextmanager
def _server(shell: Shell) -> Iterator[str]:
    port = _free_port()
    command = [sys.executable, "-m", "registry.app", "serve", "--port", str(port)]
    log = (shell.folder / "server.log").open("wb")
    process = subprocess.Popen(command, env=shell.environment, stdout=log, stderr=log)  # noqa: S603
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=START_S)
        log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(url: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urlopen(f"{url}/healthz", timeout=1):  # noqa: S310 - our own loopback address
                return
        except (URLError, TimeoutError):
            time.sleep(0.1)
    raise UnavailableError(
        Problem(code="SERVER_DID_NOT_START", expected="an answer", observed="none", hint="Read the server's log.")
    )
