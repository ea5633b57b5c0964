"""Registering many adapters: a batch writes what one by one would be, and a refused one stops no other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import select

from registry.client import EmbeddedRegistry
from registry.db.rows import AuditEventRow, TensorLocationRow
from registry.errors import UnavailableError
from registry.service import bulk
from registry.service.results import Shown
from registry.storage import FolderStore, Shelf
from registry.storage.staging import Staged
from schemas.digests import Digest
from tests.support import tiny
from tests.support.house import BASE, House, assert_whole


@pytest.fixture
def house(tmp_path: Path, database_url: str) -> House:
    """A registry with a base."""
    return House(tmp_path, database_url).furnish(adapters=0)


def directories(house: House, *names: str) -> list[Path]:
    """An adapter a name, each different."""
    return [tiny.write_adapter(house.folder / "in" / name, seed) for seed, name in enumerate(names, 10)]


def actions(registry: EmbeddedRegistry) -> list[str]:
    """The actions of the audit events after the base's, oldest first."""
    with registry.context.database.reading() as reader:
        return list(reader.all(select(AuditEventRow.action).order_by(AuditEventRow.sequence)))[1:]


def places(registry: EmbeddedRegistry) -> set[tuple[str, str, int, int, str, str]]:
    """Every tensor location."""
    columns = TensorLocationRow
    with registry.context.database.reading() as reader:
        rows = reader.all(select(columns))
        return {(row.tensor, row.blob, row.offset, row.length, row.dtype, row.shape_json) for row in rows}


def told(shown: Shown) -> Shown:
    """Without who said it when."""
    return shown.model_copy(update={"statements": tuple(item["body"] for item in shown.statements)})


def test_a_batch_writes_what_one_by_one_would_be(house: House, tmp_path: Path) -> None:
    names = ("a", "b", "c")
    given = directories(house, *names)
    other = House(tmp_path / "other", f"sqlite:///{tmp_path / 'other.db'}")
    other.folder.mkdir()
    with house.open() as together, other.furnish(adapters=0).open() as singly:
        done = together.add_adapters(given, BASE)
        assert [item.ref for item in done.added] == ["a@1", "b@1", "c@1"]
        assert all(item.created for item in done.added)
        assert done.refused == ()
        assert [singly.add_adapter(directory, BASE, directory.name) for directory in given] == list(done.added)
        assert [told(together.show(name)) for name in names] == [told(singly.show(name)) for name in names]
        assert places(together) == places(singly)
        assert actions(together) == ["adapter.add"]
        assert_whole(together)


def test_a_refused_directory_is_named_and_stops_no_other(house: House) -> None:
    one, bad, named, two = directories(house, "one", "bad", "Not-A-Name", "two")
    (bad / "adapter_config.json").write_text("{}")
    with house.open() as registry:
        missing = house.folder / "in" / "missing"
        done = registry.add_adapters([one, bad, missing, named, two], BASE)
        assert [item.name for item in done.added] == ["one", "two"]
        assert [item.directory for item in done.refused] == [bad, missing, named]
        assert done.refused[1].error.code == "DIRECTORY_MISSING"
        assert done.refused[2].error.code == "NAME_INVALID"
        assert sorted(actions(registry)) == ["adapter.add", "adapter.add.refused"]
        assert list((house.folder / "home" / "store" / "scratch").iterdir()) == []
        assert_whole(registry)


def test_a_repeat_finds_everything_there_and_changes_nothing(house: House) -> None:
    given = directories(house, "a", "b")
    with house.open() as registry:
        first = registry.add_adapters(given, BASE)
        before = actions(registry)
        again = registry.add_adapters(given, BASE)
        assert [replaced.model_copy(update={"created": True}) for replaced in again.added] == list(first.added)
        assert not any(item.created for item in again.added)
        assert actions(registry) == before


def test_a_repeat_brings_lost_bytes_back(house: House) -> None:
    given = directories(house, "a", "b")
    with house.open() as registry:
        registry.add_adapters(given, BASE)
        for file in registry.show("b").files:
            registry.context.store.delete(file.blob)
        assert not registry.verify(deep=True).clean
        registry.add_adapters(given, BASE)
        assert_whole(registry)


def test_adapters_known_under_other_names_and_names_of_other_adapters_find_their_place(house: House) -> None:
    one, two = directories(house, "one", "two")
    (same,) = (tiny.write_adapter(house.folder / "again" / "same", 10),)
    newer = tiny.write_adapter(house.folder / "again" / "two", 99)
    on_base = tiny.write_adapter(house.folder / "again" / BASE, 98)
    with house.open() as registry:
        registry.add_adapter(one, BASE, "first")
        done = registry.add_adapters([one, two, same, newer, on_base], BASE)
        assert [item.ref for item in done.added] == ["one@1", "two@1", "same@1", "two@2"]
        assert [item.created for item in done.added] == [False, True, False, True]
        assert registry.show("one").refs == ("first@1", "one@1", "same@1")
        (refused,) = done.refused
        assert (refused.directory, refused.error.code) == (on_base, "NAME_TAKEN_BY_KIND")
        assert_whole(registry)


def test_every_batch_is_one_transaction(house: House) -> None:
    given = directories(house, "a", "b", "c", "d", "e")
    settled: list[int] = []
    with house.open() as registry:
        bulk.add_adapters(registry.context, given, BASE, batch=2, progress=settled.append)
        assert actions(registry) == ["adapter.add"] * 3
        assert settled == [2, 2, 1]
        assert_whole(registry)


@dataclass
class Meddler(FolderStore):
    """A folder store whose source files change after they were read; with a shelf that lets nothing lie, if wanted."""

    root: Path
    victim: Path
    shelves: bool

    def __post_init__(self) -> None:
        super().__init__(self.root)

    @contextmanager
    def shelf(self) -> Iterator[Shelf]:
        """One whose folder is not there, or one as always."""
        with super().shelf() as shelf:
            yield shelf if self.shelves else Shelf(self.root / "nowhere")

    def put_files(self, wanted: Mapping[Digest, Path], shelved: Sequence[Staged] = ()) -> None:
        """Change one file, then store."""
        self.victim.write_bytes(self.victim.read_bytes()[:-1] + b"\x3e")
        super().put_files(wanted, shelved)


@pytest.mark.parametrize("shelves", [True, False])
def test_a_file_that_changes_meanwhile_is_stored_as_what_it_was_or_what_it_has_become(
    house: House, shelves: bool
) -> None:
    given = directories(house, "a", "b")
    victim = given[1] / "adapter_model.safetensors"
    before = victim.read_bytes()
    with house.open() as registry:
        store = Meddler(house.folder / "home" / "store", victim, shelves)
        done = bulk.add_adapters(replace(registry.context, store=store), given, BASE)
        assert [item.name for item in done.added] == ["a", "b"]
        (blob,) = [file.blob for file in registry.show("b").files if file.path == victim.name]
        assert store.read(blob) == (before if shelves else victim.read_bytes())
        assert_whole(registry)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_database_that_is_held_ends_the_work_and_keeps_what_was_committed(house: House) -> None:
    given = directories(house, "a", "b", "c", "d")
    file = house.folder / "registry.db"
    with house.open() as registry:
        registry.context.database._patience_s = 0.0
        holder = sqlite3.connect(file, isolation_level=None)

        def hold(_settled: int) -> None:
            if not holder.in_transaction:
                holder.execute("BEGIN IMMEDIATE")

        with pytest.raises(UnavailableError) as caught:
            bulk.add_adapters(registry.context, given, BASE, batch=2, progress=hold)
        holder.close()
        assert caught.value.code == "DATABASE_BUSY"
        assert_whole(registry)
        assert [item.created for item in registry.add_adapters(given, BASE).added] == [False, False, True, True]
