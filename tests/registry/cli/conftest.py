"""Where the commands of a test act: on a registry of this machine, and on the same behind a server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from registry.client import EmbeddedRegistry
from registry.settings import Settings
from tests.support.served import serving

Where = Literal["embedded", "remote"]
EVERYTHING = ("read", "register", "compose", "publish", "admin")


@pytest.fixture(params=["embedded", "remote"])
def where(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Where]:
    """A fresh registry in `home` of the working directory; behind a server, the commands are told that alone."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    shutil.copyfile(sqlite_template, home / "registry.db")
    environment = {"REGISTRY_HOME": str(home), "REGISTRY_WORKERS": "1", "REGISTRY_PRINCIPAL": "tester"}
    if request.param == "embedded":
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield "embedded"
        return
    with EmbeddedRegistry.open(Settings(home=home)) as registry:
        token = registry.create_token("tester", EVERYTHING)
    with serving(tmp_path, environment) as server:
        monkeypatch.setenv("REGISTRY_HOME", str(tmp_path / "nowhere"))
        monkeypatch.setenv("REGISTRY_URL", server.url)
        monkeypatch.setenv("REGISTRY_TOKEN", token.secret)
        yield "remote"
    assert not (tmp_path / "nowhere").exists()
