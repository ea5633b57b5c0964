"""A shelf: what is found there is whole and on disk, whichever process put it, and what is stored is not put again."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from registry.storage import FolderStore, Shelf
from tests.registry.storage.contract import blob_digests

ABC = blob_digests(b"abc")


def test_a_file_is_found_once_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, found = Shelf(tmp_path), []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        found.append((os.fstat(descriptor).st_size, shelf.find(ABC)))

    monkeypatch.setattr(os, "fsync", note)
    shelf.put(ABC.digest, b"abc")
    assert shelf.find(ABC) is None
    shelf.settle()
    assert found == [(3, None)]
    staged = shelf.find(ABC)
    assert staged is not None
    assert staged.digests == ABC
    assert staged.path.read_bytes() == b"abc"
    assert staged.path.stat().st_mode & 0o222 == 0
    shelf.drop(ABC.digest)
    shelf.drop(ABC.digest)
    assert list(tmp_path.iterdir()) == []


def test_another_process_fills_the_same_shelf(tmp_path: Path) -> None:
    here, sent = Shelf(tmp_path), pickle.dumps(Shelf(tmp_path))
    here.put(ABC.digest, b"abc")
    child = os.fork()
    if child == 0:
        there = pickle.loads(sent)
        for data in (b"abc", b"def"):
            there.put(blob_digests(data).digest, data)
        there.settle()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    here.settle()
    for data in (b"abc", b"def"):
        staged = here.find(blob_digests(data))
        assert staged is not None
        assert staged.path.read_bytes() == data
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_stored_is_left_out(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put_bytes(b"abc")
    with store.shelf() as shelf:
        shelf.put(ABC.digest, b"abc")
        shelf.settle()
        assert shelf.find(ABC) is None


@pytest.mark.parametrize("refused", ["write", "fsync"])
def test_what_the_disk_does_not_take_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    shelf = Shelf(tmp_path)
    monkeypatch.setattr(os, refused, full)
    shelf.put(ABC.digest, b"abc")
    shelf.settle()
    assert list(tmp_path.iterdir()) == []
