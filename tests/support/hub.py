"""A local stand-in for a model hub: the part of its HTTP interface that fetching a repository uses.

Paths and headers as the hub documents them: ``/api/models/ID/revision/REV?blobs=true`` answers with the commit and the
files; ``/ID/resolve/COMMIT/FILE`` gives a file, its ``ETag`` and, for large files, ``X-Linked-Size`` and -``ETag``.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """Files by name, the branches that point at its one commit, and files whose announced facts are false."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    branches: tuple[str, ...] = ("main",)
    announced: dict[str, dict[str, Any]] = field(default_factory=dict)

    def described(self) -> list[dict[str, Any]]:
        """The files as the hub lists them; weights lie in large-file storage."""
        return [self._described(name, data) | self.announced.get(name, {}) for name, data in self.files.items()]

    def _described(self, name: str, data: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
        if name.endswith((".safetensors", ".bin")):
            found["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return found


@dataclass
class Hub:
    """A running hub and what was asked of it."""

    url: str
    repositories: dict[str, Repository]
    fetched: list[str]


@contextmanager
def running_hub(repositories: dict[str, Repository]) -> Iterator[Hub]:
    """A hub on this machine with these repositories."""
    fetched: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            if path.startswith("/api/models/"):
                repository, _, revision = path.removeprefix("/api/models/").partition("/revision/")
                self._info(repository, revision or "main")
            else:
                repository, _, rest = path[1:].partition("/resolve/")
                commit, _, name = rest.partition("/")
                self._file(repository, commit, name, body=body)

        def _info(self, name: str, revision: str) -> None:
            found = repositories.get(name)
            if found is None:
                self._refuse("RepoNotFound")
            elif revision not in (*found.branches, found.commit):
                self._refuse("RevisionNotFound")
            else:
                info = {"id": name, "modelId": name, "sha": found.commit, "siblings": found.described(), "tags": []}
                self._send(json.dumps(info).encode(), {"Content-Type": "application/json"})

        def _file(self, repository: str, commit: str, name: str, *, body: bool) -> None:
            found = repositories.get(repository)
            if found is None or commit != found.commit or name not in found.files:
                self._refuse("EntryNotFound")
                return
            data = found.files[name]
            etag = hashlib.sha256(data).hexdigest()
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit, "X-Linked-Size": str(len(data))}
            if body:
                fetched.append(name)
            self._send(data, headers | {"X-Linked-ETag": f'"{etag}"'}, body=body)

        def _refuse(self, code: str) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send(self, data: bytes, headers: dict[str, str], *, body: bool = True) -> None:
            self.send_response(200)
            for key, value in (headers | {"Content-Length": str(len(data))}).items():
                self.send_header(key, value)
            self.end_headers()
            if body and self.command == "GET":
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Hub(f"http://127.0.0.1:{server.server_port}", repositories, fetched)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
