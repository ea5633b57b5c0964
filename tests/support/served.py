"""Real server processes: `registry serve` on a port of its own choice, over a database and a store."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from tests.support.databases import stop_with_parent
from tests.support.forks import REPOSITORY, Forked, forks, public

START_S = 180.0
Server = Forked | subprocess.Popen[bytes]


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Served:
    """One `registry serve`, with every process it starts."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *options: str) -> None:
        self._log = folder / f"server-{uuid4().hex[:8]}.log"
        arguments = ["serve", "--port", "0", "--log", "json", *options]
        reader, writer = os.pipe()
        try:
            with self._log.open("wb") as log:
                self._process = started(arguments, environment, folder, writer, log.fileno())
        finally:
            os.close(writer)
        self._said = os.fdopen(reader)
        self.url = self._said.readline().strip()
        assert self.url.startswith("http://"), self.log_text()
        self.until(lambda: self.ask("GET", "/healthz").status == 200)

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 90.0,
    ) -> Answer:
        """One request on a connection of its own. Raises OSError or HTTPException when no answer comes."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes) else None
        if body is not None and data is None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = http.client.HTTPConnection(*self.address, timeout=timeout_s)
        try:
            connection.request(method, path, data, sent)
            found = connection.getresponse()
            lower = {key.lower(): value for key, value in found.getheaders()}
            return Answer(found.status, lower, found.read())
        finally:
            connection.close()

    def upload(self, path: str, directory: Path, fields: Mapping[str, str], token: str) -> Answer:
        """The files of a directory in one multipart POST."""
        body, form = multipart(directory, fields)
        return self.ask("POST", path, token=token, body=body, headers=form)

    def until(self, done: Callable[[], bool], patience_s: float = START_S) -> None:
        """Wait until something holds; no answer counts as not yet."""
        deadline = time.monotonic() + patience_s
        while True:
            with suppress(OSError, http.client.HTTPException):
                if done():
                    return
            assert time.monotonic() < deadline, self.log_text()[-4000:]
            time.sleep(0.05)

    def events(self) -> list[dict[str, Any]]:
        """What it logged; a line whose end is not written yet does not count."""
        lines = self.log_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def log_text(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text(encoding="utf-8")

    def terminate(self) -> int:
        """Ask it to end, and its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(START_S)

    def kill(self) -> None:
        """End every process of it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(START_S)
        self._said.close()


def started(arguments: list[str], environment: Mapping[str, str], folder: Path, stdout: int, stderr: int) -> Server:
    """Forked, unless it starts processes itself: those import everything, as the one that starts them should."""
    if "--workers" not in arguments:
        return forks().start(arguments, environment, folder, stdout=stdout, stderr=stderr)
    return subprocess.Popen(
        [sys.executable, "-m", "registry.app", *arguments],
        stdout=stdout,
        stderr=stderr,
        cwd=folder,
        env={**public(), "PYTHONPATH": str(REPOSITORY), **environment},
        start_new_session=True,
        preexec_fn=stop_with_parent,
    )


def multipart(directory: Path, fields: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """The files of a directory and some fields as one form, and its header."""
    edge = uuid4().hex
    parts = [
        f'--{edge}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    for file in sorted(directory.iterdir()):
        head = f'--{edge}\r\nContent-Disposition: form-data; name="files"; filename="{file.name}"\r\n\r\n'
        parts += [head.encode(), file.read_bytes(), b"\r\n"]
    parts.append(f"--{edge}--\r\n".encode())
    return b"".join(parts), {"Content-Type": f"multipart/form-data; boundary={edge}"}


@contextmanager
def serving(folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[Served]:
    """A server that is gone at the end."""
    made = Served(folder, environment, *options)
    try:
        yield made
    finally:
        made.kill()


class Line:
    """A line to a server that can be cut: what was connected ends, and nobody answers until it is mended."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.mend()

    def mend(self) -> None:
        """Answer, on the same port as before."""
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End every connection and refuse new ones."""
        assert self._listener is not None
        _end(self._listener)
        with self._lock:
            opened, self._open = self._open, set()
        for each in opened:
            _end(each)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pass, args=(source, sink), daemon=True).start()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for each in (source, sink):
        _end(each)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
