"""The same registry twice: in this process, and behind a real server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from registry.client import EmbeddedRegistry
from registry.client.remote import RemoteRegistry
from registry.client.remote.http import Patience
from registry.settings import Settings
from tests.support import tiny
from tests.support.served import serving

EVERYTHING = ("read", "register", "compose", "publish", "admin")
BRISK = Patience(tries=3, first_pause_s=0.01)


@dataclass(frozen=True)
class Served:
    """A registry behind a server: where it is, its home, and a token for everything."""

    folder: Path
    url: str
    token: str

    @contextmanager
    def client(self, patience: Patience = BRISK) -> Iterator[RemoteRegistry]:
        """A client of it."""
        with RemoteRegistry.open(Settings(url=self.url, token=self.token), patience) as registry:
            yield registry

    @contextmanager
    def inside(self) -> Iterator[EmbeddedRegistry]:
        """The registry itself."""
        with EmbeddedRegistry.open(settings_in(self.folder)) as registry:
            yield registry


def settings_in(folder: Path) -> Settings:
    """A registry in a folder."""
    return Settings(home=folder / "home", workers=1, principal="tester")


def made_in(folder: Path, template: Path) -> Path:
    """A fresh registry in a folder."""
    (folder / "home").mkdir(parents=True)
    shutil.copyfile(template, folder / "home" / "registry.db")
    return folder


def furnish(registry: EmbeddedRegistry | RemoteRegistry, folder: Path) -> None:
    """A base, whose bytes are kept, and adapters `one` and `two`."""
    registry.add_base(tiny.write_base(folder / "base"), "tiny", store=True)
    for seed, name in enumerate(("one", "two"), 1):
        registry.add_adapter(tiny.write_adapter(folder / name, seed), "tiny", name)


@pytest.fixture
def served(sqlite_template: Path, tmp_path: Path) -> Iterator[Served]:
    """A registry behind a server, with a base and two adapters."""
    folder = made_in(tmp_path / "served", sqlite_template)
    with EmbeddedRegistry.open(settings_in(folder)) as registry:
        token = registry.create_token("tester", EVERYTHING).secret
    environment = {"REGISTRY_HOME": str(folder / "home"), "REGISTRY_WORKERS": "1", "REGISTRY_PRINCIPAL": "tester"}
    with serving(folder, environment) as server:
        found = Served(folder, server.url, token)
        with found.client() as remote:
            furnish(remote, folder)
        yield found
