"""Hands that go around the registry: a deep verification names each edit of the database or a blob, and no more.

SQL edits run with every guard taken away and put back. Raw edits change bytes of the SQLite file itself; on PostgreSQL,
whose pages carry checksums of their own, a superuser changes the same cells.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import make_url

from registry.client import EmbeddedRegistry
from registry.db import chain, manifests, migrate, tensors
from registry.db.rows import AuditEventRow
from schemas.adapter import AdapterManifest
from schemas.digests import Digest
from tests.support.databases import PostgresServer
from tests.support.house import BASE, House, assert_whole, faults
from tests.support.tampering import tamper
from tests.support.warmed import Warmed

Found = set[tuple[str, str]]


@dataclass(frozen=True)
class Scene:
    """A registry to tamper with: `one` published, then `merged` for the reason `canary`."""

    house: House
    base: Digest
    one: Digest
    two: Digest
    publication: Digest
    blob: Digest
    other_blob: Digest
    tensor: Digest
    offset: str

    @property
    def on_sqlite(self) -> bool:
        """Whether the database is a file."""
        return self.house.database_url.startswith("sqlite")

    @property
    def file(self) -> Path:
        """The database file."""
        return self.house.folder / "registry.db"

    def sql(self, *statements: str) -> None:
        """Run statements with the guards away; `{one}` and the like stand for digests."""
        tamper(self.house.database_url, *(self.fill(statement) for statement in statements))

    def raw(self, before: str, after: str) -> None:
        """Change bytes of the database file that occur exactly once."""
        data, old = self.file.read_bytes(), self.fill(before).encode()
        assert data.count(old) == 1
        self.file.write_bytes(data.replace(old, self.fill(after).encode()))

    def path(self, digest: Digest) -> Path:
        """The file of a blob, writable."""
        name = digest.removeprefix("blake3:")
        path = self.house.folder / "home" / "store" / "blobs" / name[:2] / name
        path.chmod(0o644)
        return path

    def fill(self, text: str) -> str:
        """Digests in place of their names."""
        for name in ("base", "one", "two", "publication", "blob", "other_blob", "tensor", "offset"):
            text = text.replace(f"{{{name}}}", getattr(self, name))
        return text


@dataclass(frozen=True)
class Edit:
    """What is done, and the code and subject of everything that must be found."""

    act: Callable[[Scene], None]
    found: tuple[tuple[str, str], ...]


def sql(*statements: str, postgresql: str | None = None) -> Callable[[Scene], None]:
    return lambda scene: scene.sql(*(statements if postgresql is None or scene.on_sqlite else (postgresql,)))


def raw(before: str, after: str, postgresql: str) -> Callable[[Scene], None]:
    return lambda scene: scene.raw(before, after) if scene.on_sqlite else scene.sql(postgresql)


def in_bytes(before: str, after: str, where: str) -> str:
    """PostgreSQL's statement that changes text in the bytes of manifests."""
    changed = f"convert_to(replace(convert_from(data, 'UTF8'), '{before}', '{after}'), 'UTF8')"
    return f"UPDATE manifest SET data = {changed} WHERE {where}"


def flip(scene: Scene) -> None:
    data = bytearray(scene.path(scene.blob).read_bytes())
    data[-3] ^= 1
    scene.path(scene.blob).write_bytes(data)


def truncate(scene: Scene) -> None:
    scene.path(scene.blob).write_bytes(scene.path(scene.blob).read_bytes()[:-1])


def remove(scene: Scene) -> None:
    scene.path(scene.blob).unlink()


def replace(scene: Scene) -> None:
    shutil.copyfile(scene.path(scene.other_blob), scene.path(scene.blob))


BLOB_CHANGED = (("BLOB_DIGEST_MISMATCH", "{blob}"),)
EDITS = {
    "manifest bytes": Edit(
        sql(
            "UPDATE manifest SET data = replace(data, 'lora', 'lorb') WHERE digest = '{two}'",
            postgresql=in_bytes("lora", "lorb", "digest = '{two}'"),
        ),
        (("MANIFEST_DIGEST_MISMATCH", "{two}"), ("ROW_EDITED", 'manifest ["{two}"]')),
    ),
    "version of a name": Edit(
        sql("UPDATE name_version SET digest = '{one}' WHERE name = 'two'"), (("ROW_EDITED", 'name_version ["two",1]'),)
    ),
    "published artifact": Edit(
        sql("UPDATE generation_artifact SET artifact = '{two}' WHERE number = 1"),
        (("ROW_EDITED", 'generation_artifact ["bot",1,0]'),),
    ),
    "edge removed": Edit(
        sql("DELETE FROM edge WHERE child = '{one}'"), (("ROW_MISSING", 'edge ["{one}","{base}","base",0]'),)
    ),
    "rows of a table removed": Edit(
        sql("DELETE FROM alias_event"),
        (("ROW_MISSING", 'alias_event ["one","stable",1]'), ("ROW_MISSING", 'alias_event ["one","stable",2]')),
    ),
    "tombstone smuggled into a change": Edit(
        sql(
            "INSERT INTO purge_event (subject, reason, created, change_id) "
            "SELECT '{two}', 'x', created, change_id FROM name_version WHERE name = 'two'"
        ),
        (("ROW_INSERTED", 'purge_event ["{two}"]'),),
    ),
    "place of a tensor": Edit(
        sql("UPDATE tensor_location SET length = 99999999 WHERE tensor = '{tensor}'"),
        (("BLOB_RANGE", "{tensor}"), ("ROW_EDITED", 'tensor_location ["{tensor}","{blob}",{offset}]')),
    ),
    "audit event": Edit(
        sql("UPDATE audit_event SET principal = 'nobody' WHERE sequence = 3"), (("EVENT_EDITED", "audit_event [3]"),)
    ),
    "audit event removed": Edit(
        sql("DELETE FROM audit_event WHERE sequence = 3"),
        (("EVENT_MISSING", "audit_event [3]"), ("EVENT_MISSING", 'blob ["{other_blob}"]')),
    ),
    "raw byte of a generation": Edit(
        raw(
            "{publication}canary",
            "{publication}canarz",
            "UPDATE generation SET reason = 'canarz' WHERE channel = 'bot' AND number = 2",
        ),
        (("ROW_EDITED", 'generation ["bot",2]'),),
    ),
    "raw byte of a manifest": Edit(
        raw(
            '"reason":"canary"',
            '"reason":"canarz"',
            in_bytes("canary", "canarz", "digest = '{publication}'"),
        ),
        (("MANIFEST_DIGEST_MISMATCH", "{publication}"), ("ROW_EDITED", 'manifest ["{publication}"]')),
    ),
    "raw byte of an audit event": Edit(
        raw(
            "composition.storetester",
            "composition.storetestes",
            "UPDATE audit_event SET principal = 'testes' WHERE sequence = 5",
        ),
        (("EVENT_EDITED", "audit_event [5]"),),
    ),
    "blob byte flipped": Edit(flip, BLOB_CHANGED),
    "blob truncated": Edit(truncate, BLOB_CHANGED),
    "blob removed": Edit(remove, (("BLOB_MISSING", "{blob}"),)),
    "blob replaced by another": Edit(replace, BLOB_CHANGED),
}


BYTES, BROKEN_TEXT = "x'ff00'", "CAST(x'ff' AS TEXT)"
ANOTHER_KEY = {"ROW_INSERTED", "ROW_MISSING"}
OF_ANOTHER_TYPE = (
    ("audit_event", "sequence", BYTES, {"EVENT_EDITED"}),
    ("audit_event", "sequence", "'last'", {"EVENT_EDITED"}),
    ("audit_event", "change_id", BYTES, {"EVENT_EDITED"}),
    ("audit_event", "hash", BYTES, {"EVENT_EDITED"}),
    ("manifest", "digest", BYTES, ANOTHER_KEY),
    ("manifest", "digest", BROKEN_TEXT, ANOTHER_KEY),
    ("manifest", "data", "1.5", {"ROW_EDITED", "MANIFEST_DIGEST_MISMATCH"}),
    ("manifest", "kind", BYTES, {"ROW_EDITED"}),
    ("name_version", "name", BYTES, ANOTHER_KEY),
    ("edge", "change_id", BROKEN_TEXT, {"ROW_MISSING", "EVENT_MISSING"}),
)
"""Cells that SQLite takes whatever their column says, and the codes that must be among those of what is found."""


def make_scene(house: House, warmed: Warmed) -> Scene:
    """Furnish, compose, publish, and bring everything into the one database file."""
    with house.furnish().open() as registry:
        admit = ("admit", str(house.spec("merged", -0.5)))
        assert warmed.run(admit, house.environment, house.folder).exit == 0
        registry.publish("bot", ["one"])
        publication = registry.publish("bot", ["merged"], reason="canary").publication
        registry.add_adapter(house.folder / "two", BASE, "one")
        registry.alias("one@1", "stable")
        registry.alias("one@2", "stable")
        scene = _scene(house, registry, publication)
    if scene.on_sqlite:
        with sqlite3.connect(scene.file) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    return scene


def _scene(house: House, registry: EmbeddedRegistry, publication: Digest) -> Scene:
    one, two, base = (registry.show(ref) for ref in ("one@1", "two@1", BASE))
    blob, other = (next(item.blob for item in shown.files if item.path.endswith("safetensors")) for shown in (one, two))
    with registry.context.database.reading() as reader:
        tensor = manifests.load(reader, one.digest, AdapterManifest).factors[0].a.tensor
        (place,) = tensors.locations(reader, [tensor])[tensor]
    return Scene(house, base.digest, one.digest, two.digest, publication, blob, other, tensor, str(place.offset))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warmed: Warmed) -> Scene:
    """Made once on each database; every test tampers with a copy."""
    folder = tmp_path_factory.mktemp("original")
    url = f"sqlite:///{folder / 'registry.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.url(server.create())
    migrate.upgrade(url)
    return make_scene(House(folder, url), warmed)


@pytest.fixture
def scene(original: Scene, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A copy to tamper with."""
    folder = Path(shutil.copytree(original.house.folder, tmp_path / "copy"))
    if original.on_sqlite:
        yield Scene(**(original.__dict__ | {"house": House(folder, f"sqlite:///{folder / 'registry.db'}")}))
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create(str(make_url(original.house.database_url).database))
    yield Scene(**(original.__dict__ | {"house": House(folder, server.url(name))}))
    server.drop(name)


def found(scene: Scene, expect_head: str | None = None) -> Found:
    """Code and subject of every fault."""
    with scene.house.open() as registry:
        return {(fault.code, fault.subject) for fault in faults(registry, expect_head)}


def test_an_untouched_copy_is_clean(scene: Scene) -> None:
    with scene.house.open() as registry:
        assert_whole(registry)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_named_and_nothing_else_is_blamed(scene: Scene, name: str) -> None:
    edit = EDITS[name]
    edit.act(scene)
    assert found(scene) == {(code, scene.fill(subject)) for code, subject in edit.found}


def test_cells_of_another_type_are_found_and_told(scene: Scene) -> None:
    if not scene.on_sqlite:  # PostgreSQL takes none
        return
    whole = scene.file.read_bytes()
    for table, column, cell, codes in OF_ANOTHER_TYPE:
        scene.file.write_bytes(whole)
        scene.sql(f"UPDATE {table} SET {column} = {cell} WHERE rowid = (SELECT max(rowid) FROM {table})")
        with scene.house.open() as registry:
            told = registry.verify(deep=True)
        assert codes <= {fault.code for fault in told.faults}, (table, column, cell)
        assert told.model_dump_json()


def test_a_history_rewritten_with_fitting_hashes_is_found_by_the_head_kept_elsewhere(scene: Scene) -> None:
    with scene.house.open() as registry:
        head = registry.verify().head
        with registry.context.database.reading() as reader:
            newest = registry.verify().audit_events
            event = reader.session.get_one(AuditEventRow, newest)
    assert found(scene, head) == set()
    event.principal = "somebody else"
    scene.sql(
        f"UPDATE audit_event SET principal = 'somebody else', hash = '{chain.event_hash(event)}' "
        f"WHERE sequence = {newest}"
    )
    assert found(scene) == set()
    assert {code for code, _ in found(scene, head)} == {"HEAD_MISSING"}


def test_a_changed_base_file_is_named_by_its_base(scene: Scene, original: Scene) -> None:
    file = original.house.folder / "base" / "model.safetensors"
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    changed = found(scene)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert changed == {("BASE_BYTES_CHANGED", scene.base)}
    assert found(scene) == set()


def test_a_base_file_changed_behind_its_old_time_is_named_only_when_its_bytes_are_read(
    scene: Scene, original: Scene
) -> None:
    file = original.house.folder / "base" / "model.safetensors"
    status, data = file.stat(), file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    try:
        assert found(scene) == set()
        with scene.house.open() as registry:
            named = {(fault.code, fault.subject) for fault in registry.verify(base_files=True).faults}
        assert named == {("BASE_BYTES_CHANGED", scene.base)}
    finally:
        file.write_bytes(data)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with scene.house.open() as registry:
        assert registry.verify(base_files=True).faults == ()
