"""A caller of the web application in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3
from fastapi.testclient import TestClient
from httpx2 import Response

from registry.api.app import create_app
from registry.service import tokens
from registry.service.context import Context
from registry.service.grants import PERMISSIONS
from tests.support import tiny


@dataclass(frozen=True)
class Api:
    """A client that sends one token with everything it asks."""

    client: TestClient
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **sent: Any) -> Response:
        return self.client.request(method, path, headers={**self.headers, **(headers or {})}, **sent)

    def get(self, path: str, **sent: Any) -> Response:
        return self.ask("GET", path, **sent)

    def post(self, path: str, body: object = None, **sent: Any) -> Response:
        return self.ask("POST", path, json=body, **sent)

    def put_blob(self, data: bytes) -> str:
        """Store a blob; its digest."""
        digest = f"blake3:{blake3(data).hexdigest()}"
        answer = self.ask("PUT", f"/v1/blobs/{digest}", content=data)
        assert answer.status_code in (200, 201), answer.text
        return digest

    def put_directory(self, directory: Path) -> dict[str, str]:
        """Store the files of a directory; their digests by name."""
        return {path.name: self.put_blob(path.read_bytes()) for path in sorted(directory.iterdir())}

    def add_base(self, directory: Path, name: str) -> Response:
        return self.post("/v1/bases", {"name": name, "files": self.put_directory(directory)})

    def add_adapter(self, directory: Path, name: str, base: str = "tiny") -> Response:
        return self.post("/v1/adapters", {"name": name, "base": base, "files": self.put_directory(directory)})

    def publish(self, channel: str, ref: str, head: int, **headers: str) -> Response:
        sent = {"If-Match": f'"g{head}"', **{key.replace("_", "-"): value for key, value in headers.items()}}
        return self.post(f"/v1/channels/{channel}/generations", {"refs": [ref]}, headers=sent)

    def walk(self, path: str) -> Iterator[dict[str, Any]]:
        """Every item of a list, page after page by the Link header."""
        following: str | None = path
        while following is not None:
            answer = self.get(following)
            assert answer.status_code == 200, answer.text
            body = answer.json()
            yield from body if isinstance(body, list) else body["items"]
            link = answer.headers.get("Link")
            following = None if link is None else link.partition(">")[0].removeprefix("<")

    def allowed(self, context: Context, *allow: str) -> Api:
        """The same application under another token."""
        return Api(self.client, bearer(context, *allow))


def bearer(context: Context, *allow: str, principal: str = "caller") -> dict[str, str]:
    """The header of a new token."""
    return {"Authorization": f"Bearer {tokens.create(context, principal, allow).secret}"}


@contextmanager
def opened(context: Context, **options: Any) -> Iterator[Api]:
    """An application, and a caller who may do everything."""
    with TestClient(create_app(context, **options), raise_server_exceptions=False) as client:
        yield Api(client, bearer(context, *PERMISSIONS))


def fill(api: Api, base: Path, folder: Path, *names: str) -> None:
    """Register a base `tiny` and adapters of it, by their blobs."""
    assert api.add_base(base, "tiny").status_code == 201
    for seed, name in enumerate(names, 1):
        added = api.add_adapter(tiny.write_adapter(folder / name, seed), name)
        assert added.status_code == 201, added.text
