"""A place that real servers share: SQLite and a folder, or PostgreSQL and S3 through a line that can be cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from registry.client import EmbeddedRegistry
from registry.settings import Settings
from registry.wiring import initialise
from tests.support import tiny
from tests.support.house import assert_whole
from tests.support.objects import ObjectServer
from tests.support.served import Line, Served, serving

EVERYTHING = ("read", "register", "compose", "publish", "admin")


@dataclass(frozen=True)
class Place:
    """Where servers keep what they know, how to take it away from them, and a token for everything."""

    folder: Path
    database_url: str
    store_url: str
    objects: dict[str, str]
    token: str
    cut_store: Callable[[], None]
    mend_store: Callable[[], None]

    @property
    def shared(self) -> bool:
        """Whether several servers may use it."""
        return self.database_url.startswith("postgresql")

    @property
    def environment(self) -> dict[str, str]:
        """What points a command here."""
        return {
            "REGISTRY_HOME": str(self.folder / "home"),
            "REGISTRY_DATABASE_URL": self.database_url,
            "REGISTRY_STORE_URL": self.store_url,
            "REGISTRY_CACHE": str(self.folder / "cache"),
            "REGISTRY_WEBHOOK_PRIVATE": "true",
            "REGISTRY_WORKERS": "1",
            **self.objects,
        }

    @contextmanager
    def server(self, *options: str) -> Iterator[Served]:
        """A server process."""
        with serving(self.folder, self.environment, "--no-jobs", *options) as made:
            yield made

    @contextmanager
    def open(self) -> Iterator[EmbeddedRegistry]:
        """The registry in this process."""
        with EmbeddedRegistry.open(settings_of(self.folder, self.database_url, self.store_url)) as registry:
            yield registry

    def cut_database(self) -> None:
        """End every connection to the database, whatever it is doing."""
        if self.shared:
            name = self.database_url.rpartition("/")[2].partition("?")[0]
            host = self.database_url.partition("host=")[2]
            with psycopg.connect(host=host, user="postgres", dbname="postgres", autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    def assert_whole(self) -> None:
        """Deep verification is clean and nothing is there by half."""
        with self.open() as registry:
            assert_whole(registry)

    def adapter(self, name: str, seed: int) -> Path:
        """An adapter directory."""
        return tiny.write_adapter(self.folder / name, seed)


def settings_of(folder: Path, database_url: str, store_url: str) -> Settings:
    """As the servers see them."""
    return Settings(
        home=folder / "home",
        database_url=database_url,
        store_url=store_url,
        cache=folder / "cache",
        workers=1,
        principal="tester",
    )


@pytest.fixture
def place(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Place]:
    """With a base and two adapters, their bytes in the store."""
    with ExitStack() as stack:
        if database_url.startswith("sqlite"):
            store, objects = str(tmp_path / "store"), {}
            cut, mend = _folder_switch(tmp_path / "store")
        else:
            server: ObjectServer = request.getfixturevalue("object_server")
            patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
            for name, value in server.environment().items():
                patch.setenv(name, value)
            line = Line(server.port)
            stack.callback(line.cut)
            store = f"s3://{server.bucket()}/registry"
            objects = server.environment(f"http://127.0.0.1:{line.port}")
            cut, mend = line.cut, line.mend
        settings = settings_of(tmp_path, database_url, store)
        initialise(settings)
        with EmbeddedRegistry.open(settings) as registry:
            registry.add_base(tiny.write_base(tmp_path / "base"), "tiny", store=True)
            for seed, name in enumerate(("one", "two"), 1):
                registry.add_adapter(tiny.write_adapter(tmp_path / name, seed), "tiny", name)
            token = registry.create_token("ci", EVERYTHING).secret
        yield Place(tmp_path, database_url, store, objects, token, cut, mend)


def _folder_switch(store: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """Move the blobs away and back, as when a mount is lost; a folder without rights stops nobody who is root."""
    away = store.with_name("away")

    def cut() -> None:
        (store / "blobs").rename(away)

    def mend() -> None:
        away.rename(store / "blobs")

    return cut, mend
