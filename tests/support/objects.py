"""An object store for tests: a server that speaks the S3 protocol, as a process of its own, one a test process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from tests.support.databases import stop_with_parent
from tests.support.ports import free_port

CREDENTIALS = {
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "someone",
    "AWS_SECRET_ACCESS_KEY": "a test secret",
    "AWS_REGION": "us-east-1",
}
START_S = 180.0


class ObjectServer:
    """A moto server in memory."""

    def __init__(self) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdout=quiet, stderr=quiet, cwd=Path("/"), preexec_fn=stop_with_parent, start_new_session=True
        )
        self._wait()

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"bucket-{uuid4()}"
        with urlopen(Request(f"{self.endpoint}/{name}", method="PUT")) as answer:
            assert answer.status == 200
        return name

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """What tells a client where to go and who it is."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": endpoint or self.endpoint}

    def stop(self) -> None:
        """End it; what it held is gone."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            assert self._process.poll() is None
            try:
                with urlopen(self.endpoint, timeout=1):
                    return
            except (URLError, TimeoutError):
                assert time.monotonic() < deadline
                time.sleep(0.05)


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    """The object server of this test process."""
    server = ObjectServer()
    yield server
    server.stop()


@pytest.fixture
def bucket_url(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh bucket under a prefix, with the environment that clients in this process read."""
    for name, value in object_server.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{object_server.bucket()}/registry"


@pytest.fixture
def store_url(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> str:
    """A fresh store: a folder beside SQLite, a bucket beside PostgreSQL."""
    if database_url.startswith("sqlite"):
        return str(tmp_path / "store")
    url: str = request.getfixturevalue("bucket_url")
    return url
