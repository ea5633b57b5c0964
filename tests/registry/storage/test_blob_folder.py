"""The folder's own rules: layout, modes, order of durability, symbolic links, staging and the URLs that lead to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.errors import NotFoundError, UnavailableError, UsageProblemError
from registry.storage import FolderStore, ObjectStore, open_store
from tests.registry.storage.contract import ABC_DIGEST, digest_of

NAME = ABC_DIGEST.removeprefix("blake3:")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


@pytest.fixture
def store(root: Path) -> FolderStore:
    return FolderStore(root)


def test_a_blob_lies_read_only_under_its_digest(store: FolderStore, root: Path) -> None:
    store.put_bytes(b"abc")
    path = root / "blobs" / NAME[:2] / NAME
    assert store.local_path(ABC_DIGEST) == path
    assert path.read_bytes() == b"abc"
    assert stat.S_IMODE(path.stat().st_mode) & 0o222 == 0
    assert stat.S_IMODE((root / "staging").stat().st_mode) & 0o077 == 0
    assert list((root / "staging").iterdir()) == []


def test_file_is_on_disk_before_it_is_visible_and_its_folder_after(
    store: FolderStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        name = Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(root)
        synced.append((str(name), store.has(ABC_DIGEST)))

    monkeypatch.setattr(os, "fsync", note)
    store.put_bytes(b"abc")
    (staged, visible), *folders = synced
    assert (staged.startswith("staging/"), visible) == (True, False)
    assert folders == [("blobs", False), (f"blobs/{NAME[:2]}", True)]


def test_many_files_are_on_disk_before_they_are_visible_and_each_folder_once_after(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {}
    for number in range(600):
        file = tmp_path / str(number)
        file.write_bytes(str(number).encode())
        wanted[digest_of(str(number).encode())] = file
    synced: list[tuple[Path, int]] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((place, len(list(place.iterdir())) if place.is_dir() else 0))

    monkeypatch.setattr(os, "fsync", note)
    store.put_files(wanted)
    folders = [place for place, _ in synced if place.is_dir()]
    assert len(folders) == len(set(folders)) == 1 + len({digest[7:9] for digest in wanted})
    assert len(synced) - len(folders) == 600
    # files, then the folder that got new folders, then these, complete
    assert [place.is_dir() for place, _ in synced] == [False] * 600 + [True] * len(folders)
    assert sum(files for _, files in synced[601:]) == 600


def test_a_file_moved_out_of_scratch_is_not_copied_and_is_young_and_read_only(store: FolderStore) -> None:
    with store.scratch.folder() as folder:
        file = folder / "made"
        file.write_bytes(b"abc")
        os.utime(file, (0, 0))
        made = file.stat().st_ino
        digests = store.move_file(file)
    status = store.local_path(digests.digest).stat()
    assert status.st_ino == made
    assert status.st_mode & 0o222 == 0
    assert status.st_mtime > 0


def test_a_symbolic_link_in_place_of_a_blob_is_no_blob(store: FolderStore, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"abc")
    shard = root / "blobs" / NAME[:2]
    shard.mkdir()
    (shard / NAME).symlink_to(secret)
    assert not store.has(ABC_DIGEST)
    assert list(store.entries()) == []
    with pytest.raises(NotFoundError):
        store.local_path(ABC_DIGEST)
    store.put_bytes(b"abc")
    assert not store.local_path(ABC_DIGEST).is_symlink()
    assert not secret.is_symlink()
    secret.write_bytes(b"other")
    assert store.read(ABC_DIGEST) == b"abc"


def test_a_symbolic_link_in_place_of_a_folder_is_refused(store: FolderStore, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / "blobs" / NAME[:2]).symlink_to(elsewhere)
    (elsewhere / NAME).write_bytes(b"abc")
    for ask in (store.has, store.read, store.delete):
        with pytest.raises(UnavailableError, match="real folders"):
            ask(ABC_DIGEST)
    with pytest.raises(UnavailableError, match="real folders"):
        store.put_bytes(b"abc")
    assert [file.name for file in elsewhere.iterdir()] == [NAME]
    assert list(store.entries()) == []
    assert list((root / "staging").iterdir()) == []


@pytest.mark.parametrize("name", ["blobs", "staging", "uploads"])
def test_a_store_whose_folders_are_links_does_not_open(root: Path, tmp_path: Path, name: str) -> None:
    root.mkdir(parents=True)
    (root / name).symlink_to(tmp_path)
    with pytest.raises(UnavailableError, match="real folders"):
        FolderStore(root)


def test_a_file_in_place_of_the_store_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("not a folder")
    with pytest.raises(UnavailableError) as failure:
        FolderStore(place)
    assert failure.value.code == "STORE_UNAVAILABLE"


def test_a_store_that_went_away_is_unavailable_not_empty(store: FolderStore, root: Path) -> None:
    root.rename(root.with_name("unmounted"))
    for ask in (lambda: store.has(ABC_DIGEST), lambda: list(store.entries()), lambda: store.put_bytes(b"abc")):
        with pytest.raises(UnavailableError) as failure:
            ask()
        assert failure.value.code == "STORE_UNAVAILABLE"
    assert not root.exists()


def test_a_sweep_removes_only_what_has_been_left_alone_long_enough(store: FolderStore, root: Path) -> None:
    old, young = root / "staging" / "old", root / "staging" / "young"
    for file in (old, young):
        file.write_bytes(b"unfinished")
    now = young.stat().st_mtime
    os.utime(old, (now - 7_200, now - 7_200))
    (root / "staging" / "folder").mkdir()
    assert store.sweep_staging(3_600) == 1
    assert not old.exists()
    assert young.exists()


def test_a_sweep_spares_a_put_that_is_still_writing(store: FolderStore) -> None:
    swept: list[int] = []

    def chunks() -> Iterator[bytes]:
        yield b"a"
        swept.append(store.sweep_staging(3_600))
        yield b"bc"

    assert store.put_stream(chunks()).digest == ABC_DIGEST
    assert swept == [0]
    assert store.has(ABC_DIGEST)


def test_paths_and_file_urls_open_folders(tmp_path: Path) -> None:
    for url in (str(tmp_path / "a folder"), (tmp_path / "a folder").as_uri()):
        store = open_store(url)
        assert isinstance(store, FolderStore)
        assert store.root == tmp_path / "a folder"


def test_object_store_urls_open_object_stores(tmp_path: Path) -> None:
    for url in ("memory://", "s3://bucket/prefix"):
        assert isinstance(open_store(url, cache=tmp_path / "cache"), ObjectStore)


@pytest.mark.parametrize("url", ["", "ftp://host/x", "s3://", "file://host/path", "s3://key:secret@bucket/x"])
def test_other_urls_are_refused_without_repeating_secrets(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageProblemError) as refusal:
        open_store(url, cache=tmp_path)
    assert refusal.value.code == "STORE_URL_INVALID"
    assert "secret" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []
