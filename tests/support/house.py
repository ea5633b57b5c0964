"""A small registry for campaigns: worked by a client here and by commands in other processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from sqlalchemy import select

from registry.client import EmbeddedRegistry
from registry.db import Reader
from registry.db.rows import FileRow, GenerationRow, ManifestRow, MeasurementRow, NameVersionRow, RunRecordRow
from registry.service.results import Fault
from registry.settings import Settings
from registry.wiring import initialise
from tests.support import tiny

BASE = "tiny"


@dataclass(frozen=True)
class House:
    """A registry in `folder` on a database."""

    folder: Path
    database_url: str

    @property
    def settings(self) -> Settings:
        """As the commands see them through the environment."""
        return Settings(home=self.folder / "home", database_url=self.database_url, workers=1, principal="tester")

    @property
    def environment(self) -> dict[str, str]:
        """What points a command here."""
        return {
            "REGISTRY_HOME": str(self.folder / "home"),
            "REGISTRY_DATABASE_URL": self.database_url,
            "REGISTRY_WORKERS": "1",
            "REGISTRY_PRINCIPAL": "tester",
        }

    @contextmanager
    def open(self) -> Iterator[EmbeddedRegistry]:
        """A client of it."""
        with EmbeddedRegistry.open(self.settings) as registry:
            yield registry

    def furnish(self, adapters: int = 2) -> House:
        """Create it with a base and adapters `one`, `two` and so on."""
        initialise(self.settings)
        with self.open() as registry:
            registry.add_base(tiny.write_base(self.folder / "base"), BASE)
            for seed, name in enumerate(("one", "two", "three")[:adapters], 1):
                registry.add_adapter(tiny.write_adapter(self.folder / name, seed), BASE, name)
        return self

    def spec(self, name: str, weight: float) -> Path:
        """A spec file of ``one + weight two``."""
        members = [{"ref": "one", "weight": 1.0}, {"ref": "two", "weight": weight}]
        path = self.folder / f"{name}.json"
        document = {"name": name, "base": BASE, "method": "cat", "space": "delta", "members": members}
        path.write_text(json.dumps(document), encoding="utf-8")
        return path


def faults(registry: EmbeddedRegistry, expect_head: str | None = None) -> list[Fault]:
    """Everything a deep verification finds."""
    return list(registry.verify(deep=True, expect_head=expect_head).faults)


def assert_whole(registry: EmbeddedRegistry) -> None:
    """Deep verification is clean and nothing is there by half."""
    assert faults(registry) == []
    with registry.context.database.reading() as reader:
        _assert_numbered(reader)
        _assert_complete(reader)


def _assert_numbered(reader: Reader) -> None:
    """Generations and versions count from 1 without gap, each generation after the one before."""
    generations = reader.all(select(GenerationRow).order_by(GenerationRow.channel, GenerationRow.number))
    for channel, rows in groupby(generations, key=lambda row: row.channel):
        numbers = [row.number for row in rows]
        assert numbers == list(range(1, len(numbers) + 1)), channel
    assert all(row.parts for row in generations)
    versions = reader.all(select(NameVersionRow).order_by(NameVersionRow.name, NameVersionRow.version))
    for name, named in groupby(versions, key=lambda row: row.name):
        numbers = [row.version for row in named]
        assert numbers == list(range(1, len(numbers) + 1)), name


def _assert_complete(reader: Reader) -> None:
    """What is registered has a name, and files or figures as its kind has; a publication has its generation."""
    kinds = {row.digest: row.kind for row in reader.all(select(ManifestRow))}
    named = set(reader.all(select(NameVersionRow.digest)))
    packed = set(reader.all(select(FileRow.manifest)))
    measured = set(reader.all(select(MeasurementRow.subject))) & set(reader.all(select(RunRecordRow.subject)))
    generations = set(reader.all(select(GenerationRow.publication)))
    of = {kind: {digest for digest in kinds if kinds[digest] == kind} for kind in kinds.values()}
    compositions = of.get("composition", set())
    assert of.get("base", set()) | compositions <= named <= kinds.keys()
    assert of.get("adapter", set()) <= packed
    assert compositions <= measured
    assert of.get("publication", set()) == generations
