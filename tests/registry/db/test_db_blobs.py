"""Blobs, packagings, tensor places, evidence."""

from __future__ import annotations

from functools import partial

from registry.db import Database, blobs, evidence, files, purges, tensors
from registry.db.tensors import BaseFile, Location
from registry.db.verify import verify_audit
from schemas.digests import BlobDigests, BlobHasher, Digest
from tests.registry.db.examples import ME, adapter, base, digest, store


def blob(text: str) -> BlobDigests:
    """The digests of a small file."""
    hasher = BlobHasher()
    hasher.update(text.encode())
    return hasher.finish()


def put(database: Database, *stored: BlobDigests) -> frozenset[Digest]:
    """Record blobs; those that are new."""
    return database.change("put", ME, lambda change: blobs.put(change, stored))


def referenced(database: Database, *digests: Digest) -> frozenset[Digest]:
    """Which blobs are needed."""
    with database.reading() as reader:
        return blobs.referenced(reader, digests)


def test_blobs_are_recorded_once_and_found_by_both_digests(database: Database) -> None:
    one, two = blob("one"), blob("two")
    assert put(database, one, one) == {one.digest}
    assert put(database, one, two) == {two.digest}
    with database.reading() as reader:
        found = blobs.find(reader, two.digest)
        assert found is not None
        assert (found.sha256, found.size) == (two.sha256, 3)
        by_sha = blobs.by_sha256(reader, one.sha256)
        assert by_sha is not None
        assert by_sha.digest == one.digest
        assert blobs.find(reader, digest("three")) is None


def test_presence_comes_and_goes_without_history(database: Database) -> None:
    one, two = blob("one"), blob("two")
    put(database, one, two)
    for _ in range(2):
        database.change("seen", ME, lambda change: blobs.mark_present(change, [one.digest, two.digest]))
    database.change("lost", ME, lambda change: blobs.mark_absent(change, two.digest))
    with database.reading() as reader:
        assert blobs.present(reader, [one.digest, two.digest]) == {one.digest}
        assert [row.blob for row in blobs.presence_page(reader).items] == [one.digest]


def test_a_manifest_has_as_many_packagings_as_sets_of_files(database: Database) -> None:
    store(database, base())
    one, two = blob("one"), blob("two")
    put(database, one, two)
    sets = [
        [("model.safetensors", one.digest)],
        [("a.safetensors", one.digest), ("b.safetensors", two.digest)],
        [("b.safetensors", two.digest), ("a.safetensors", one.digest)],
    ]
    created = [
        database.change("files", ME, partial(files.put, manifest=base().digest, entries=chosen)) for chosen in sets
    ]
    assert created == [True, True, False]
    with database.reading() as reader:
        first, second = files.packagings(reader, base().digest)
    assert [(entry.path, entry.blob, entry.sha256, entry.size) for entry in first.files] == [
        ("model.safetensors", one.digest, one.sha256, one.size)
    ]
    assert [entry.path for entry in second.files] == ["a.safetensors", "b.safetensors"]


def test_tensors_are_found_wherever_they_lie(database: Database) -> None:
    one, two = blob("one"), blob("two")
    put(database, one, two)
    places = [
        Location(digest("t"), one.digest, 8, 32, "F32", (2, 4)),
        Location(digest("t"), two.digest, 0, 32, "F32", (2, 4)),
        Location(digest("u"), one.digest, 40, 4, "F32", ()),
    ]
    assert database.change("put", ME, lambda change: tensors.put(change, places)) == 3
    assert database.change("put", ME, lambda change: tensors.put(change, places[:1])) == 0
    with database.reading() as reader:
        found = tensors.locations(reader, [digest("t"), digest("u"), digest("v")])
    assert {key: set(value) for key, value in found.items()} == {
        digest("t"): set(places[:2]),
        digest("u"): {places[2]},
    }


def test_base_files_keep_every_place_newest_first(database: Database) -> None:
    store(database, base())
    one = blob("one")
    put(database, one)
    for directory in ("/old", "/new"):
        entry = BaseFile("model.safetensors", one.digest, one.size, 1_700_000_000_123_456_789)
        database.change(
            "place",
            ME,
            partial(tensors.put_base_files, base=base().digest, directory=directory, entries=[entry]),
        )
    with database.reading() as reader:
        rows = tensors.base_files(reader, base().digest)
    assert [row.directory for row in rows] == ["/new", "/old"]
    assert rows[0].mtime_ns == 1_700_000_000_123_456_789


def test_a_blob_is_needed_until_every_owner_is_purged(database: Database) -> None:
    first, second = adapter(1), adapter(2)
    store(database, base(), first, second)
    shared, loose, placed = blob("shared"), blob("loose"), blob("placed")
    put(database, shared, loose, placed)
    place = Location(digest("t"), placed.digest, 0, 4, "F32", (1,))
    database.change("put", ME, lambda change: tensors.put(change, [place]))
    for owner in (first, second):
        database.change("files", ME, partial(files.put, manifest=owner.digest, entries=[("adapter", shared.digest)]))
    everything = (shared.digest, loose.digest, placed.digest)
    assert referenced(database, *everything) == {shared.digest, placed.digest}
    database.change("purge", ME, lambda change: purges.put(change, first.digest, "asked"))
    assert referenced(database, *everything) == {shared.digest, placed.digest}
    database.change("purge", ME, lambda change: purges.put(change, second.digest, "asked"))
    assert referenced(database, *everything) == {placed.digest}


def test_the_newest_evidence_level_counts(database: Database) -> None:
    store(database, base())

    def put_level(level: str) -> bool:
        return database.change("level", ME, lambda change: evidence.put(change, base().digest, "evidence", level))

    assert [put_level(level) for level in ("declared", "declared", "content")] == [True, False, True]
    with database.reading() as reader:
        assert evidence.level(reader, base().digest, "evidence") == "content"
        assert evidence.level(reader, base().digest, "binding") is None


def test_of_many_rows_only_those_with_new_keys_are_written(database: Database) -> None:
    """More keys than one look-up takes, every second one known."""
    some = [BlobDigests(digest(str(number)), f"sha256:{number}", number) for number in range(901)]
    assert len(database.change("put", ME, lambda change: blobs.put(change, some[::2]))) == 451
    assert len(database.change("put", ME, lambda change: blobs.put(change, some))) == 450
    with database.reading() as reader:
        assert verify_audit(reader) == ()
