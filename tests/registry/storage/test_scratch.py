"""Scratch folders: private, gone at the end, and swept when their process could not end them."""

from __future__ import annotations

import errno
import os
import signal
import stat
from pathlib import Path

import pytest

from registry.errors import UnavailableError
from registry.storage import FolderStore, open_store


def test_a_scratch_folder_is_private_empty_and_gone_at_the_end(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    with store.scratch.folder() as one, store.scratch.folder() as two:
        assert one != two
        assert list(one.iterdir()) == []
        assert stat.S_IMODE(one.stat().st_mode) & 0o077 == 0
        (one / "deep").mkdir()
        (one / "deep" / "file").write_bytes(b"x")
        assert store.scratch.sweep() == 0
        assert (one / "deep" / "file").exists()
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


def test_what_a_killed_process_left_is_swept_with_staging_and_what_is_in_use_stays(tmp_path: Path) -> None:
    store = open_store("memory://", cache=tmp_path / "cache")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with store.scratch.folder() as folder:
            (folder / "large").write_bytes(b"x" * 4096)
            os.write(write, b"r")
            signal.pause()
        os._exit(0)
    assert os.read(read, 1) == b"r"
    with store.scratch.folder() as mine:
        assert store.sweep_staging(3600.0) == 0
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert store.sweep_staging(3600.0) == 1
        assert list((tmp_path / "cache" / "scratch").glob("*.d")) == [mine]
    assert list((tmp_path / "cache" / "scratch").iterdir()) == []
    for end in (read, write):
        os.close(end)


def test_the_mark_of_a_process_killed_before_it_had_its_folder_is_swept(tmp_path: Path) -> None:
    store = open_store("memory://", cache=tmp_path / "cache")
    mark = tmp_path / "cache" / "scratch" / ("0" * 32)
    mark.touch()
    assert store.sweep_staging(3600.0) == 1
    assert not mark.exists()


def test_work_that_finds_no_room_says_so_and_other_errors_are_its_own(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    with pytest.raises(UnavailableError) as full, store.scratch.folder():
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.code == "STORE_FULL"
    with pytest.raises(FileNotFoundError), store.scratch.folder() as folder:
        (folder / "none").read_bytes()
