"""The README's tour, unchanged, with REGISTRY_URL pointing at a server on PostgreSQL and S3."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.page import Command
from tests.docs.runner import programs, run_page
from tests.docs.session import ROOT, Session
from tests.support.databases import PostgresServer
from tests.support.objects import ObjectServer
from tests.support.ports import free_port

OPERATORS: Final = "registry init"
OWN: Final = tuple(f"$ {line}" for line in (OPERATORS, "registry verify --deep"))
"""What says where the registry is, or counts the audit events of uploads and jobs: commands whose output differs."""
COMPARED: Final = "base weights             correlation 0.00282 with the factors"
AWAY: Final = "base weights             not verified: none of them can be read"
"""The tour sends no bytes of its base: a registry of this machine reads them where they lie, a server cannot."""


class Shared(Session):
    """A reader whose commands go to a server; the operator makes the registry and serves it before."""

    def __init__(self, folder: Path, port: int, place: dict[str, str]) -> None:
        super().__init__(folder, {"8080": str(port)}, programs())
        self._port = port
        self._place = place

    def run(self, command: Command) -> str:
        """One command; what makes and serves a registry is the operator's, with the operator's settings."""
        if command.line == OPERATORS:
            self._environment |= self._place
            told = super().run(command)
            self._serve(shlex.split(f"registry serve --port {self._port}"))
            secret = self._registry("registry token create reader --allow admin").stdout.strip()
            for name in self._place:
                del self._environment[name]
            self._environment |= {"REGISTRY_URL": f"http://127.0.0.1:{self._port}", "REGISTRY_TOKEN": secret}
            return told
        if command.line.startswith("registry serve "):
            return ""
        return super().run(command)


def but_for_weights(difference: str) -> bool:
    """Whether a command's output is the page's, but for weights that nobody could compare with."""
    page, _, observed = difference.partition("--- the page says\n")[2].partition("\n--- it is\n")
    return page.replace(COMPARED, AWAY) == observed


@pytest.fixture
def shared(tmp_path: Path, postgres_server: PostgresServer, object_server: ObjectServer) -> Iterator[Shared]:
    """A session before a server whose database is PostgreSQL and whose store is S3."""
    database = postgres_server.create()
    place = {
        "REGISTRY_DATABASE_URL": postgres_server.url(database),
        "REGISTRY_STORE_URL": f"s3://{object_server.bucket()}/registry",
        "REGISTRY_CACHE": str(tmp_path / "cache"),
        **object_server.environment(),
    }
    session = Shared(tmp_path, free_port(), place)
    with session:
        yield session
    postgres_server.drop(database)


def test_the_tour_works_unchanged_before_a_server_on_postgresql_and_s3(shared: Shared) -> None:
    differences = [text for text in run_page(ROOT / "README.md", shared) if not text.startswith(OWN)]
    unexpected = [text for text in differences if not but_for_weights(text)]
    assert not unexpected, "\n\n".join(unexpected)
    assert len(differences) == 1, "the comparison with the base's weights, which the server does not have"
    assert not list((shared.folder / "tour").iterdir()), "nothing was kept on the reader's machine"
