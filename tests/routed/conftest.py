"""A registry with a small base and adapters, reached by use case, by command and by request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient

from registry.api.app import create_app
from registry.app import cli
from registry.client import EmbeddedRegistry
from registry.service import tokens
from registry.service.context import Context
from registry.wiring import job_queue
from tests.support import tiny

Run = Callable[..., Result]


@pytest.fixture
def registry(context: Context, tiny_base: Path, tmp_path: Path) -> EmbeddedRegistry:
    """A base `tiny` and adapters `one`, `two`, `three`, on either database."""
    client = EmbeddedRegistry(context)
    client.add_base(tiny_base, "tiny", store=True)
    for seed, name in enumerate(("one", "two", "three"), 1):
        client.add_adapter(tiny.write_adapter(tmp_path / name, seed), "tiny", name)
    return client


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`registry …` against a fresh home; what fails otherwise than expected fails the test."""
    monkeypatch.setenv("REGISTRY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REGISTRY_WORKERS", "1")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(item) for item in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    invoke("init")
    return invoke


class Api:
    """A client whose token carries every permission that changes something."""

    def __init__(self, client: TestClient, secret: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {secret}"}

    def post(self, path: str, **arguments: Any) -> Any:
        """A POST; `headers` come on top of the token."""
        return self._client.post(path, headers=self._headers | arguments.pop("headers", {}), **arguments)

    def put(self, path: str, **arguments: Any) -> Any:
        """A PUT."""
        return self._client.put(path, headers=self._headers, **arguments)

    def delete(self, path: str) -> Any:
        """A DELETE."""
        return self._client.delete(path, headers=self._headers)

    def get(self, path: str) -> Any:
        """A GET."""
        return self._client.get(path, headers=self._headers)


@pytest.fixture
def api(registry: EmbeddedRegistry) -> Iterator[Api]:
    """A running application over the same registry."""
    made = tokens.create(registry.context, "ci", ("read", "register", "compose", "publish", "admin"))
    with TestClient(create_app(registry.context, runner=job_queue(registry.context))) as client:
        yield Api(client, made.secret)


def written(path: Path, document: Any) -> Path:
    """The document as a JSON file, which is YAML too."""
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
