"""Copies of an object store's blobs: verified, bounded, and what was asked for last stays longest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from registry.errors import DigestMismatchError
from registry.hashing import bytes_blocks, hash_blocks
from registry.storage.cache import Copies
from registry.storage.folder import FolderStore

SIZE = 1000
BLOBS = [bytes([number]) * SIZE for number in range(4)]


def digest_of(data: bytes) -> str:
    return hash_blocks(bytes_blocks(data)).digest


def asked(copies: Copies, data: bytes, ago_s: float) -> Path:
    """Ask for a copy, as if so many seconds ago."""
    path = copies.path(digest_of(data), SIZE, lambda: [data])
    os.utime(path, (time.time() - ago_s,) * 2)
    return path


def test_copies_beyond_the_bound_go_longest_unused_first(tmp_path: Path) -> None:
    copies = Copies(FolderStore(tmp_path), 2 * SIZE, in_use_s=60.0)
    first, second = asked(copies, BLOBS[0], 300.0), asked(copies, BLOBS[1], 200.0)
    asked(copies, BLOBS[0], 100.0)
    third = asked(copies, BLOBS[2], 0.0)
    assert [path.exists() for path in (first, second, third)] == [True, False, True]


def test_a_copy_that_was_just_named_stays_whatever_the_bound(tmp_path: Path) -> None:
    copies = Copies(FolderStore(tmp_path), SIZE, in_use_s=60.0)
    paths = [asked(copies, data, 0.0) for data in BLOBS]
    assert all(path.exists() for path in paths)


def test_a_copy_is_fetched_once_and_again_when_it_is_cut_short(tmp_path: Path) -> None:
    copies, fetched = Copies(FolderStore(tmp_path), 10 * SIZE), []

    def fetch() -> Iterable[bytes]:
        fetched.append(1)
        return [BLOBS[0]]

    paths = {copies.path(digest_of(BLOBS[0]), SIZE, fetch) for _ in range(3)}
    assert len(fetched) == 1
    (path,) = paths
    path.chmod(0o644)
    path.write_bytes(BLOBS[0][:10])
    assert copies.path(digest_of(BLOBS[0]), SIZE, fetch).read_bytes() == BLOBS[0]
    assert len(fetched) == 2


def test_other_bytes_than_were_asked_for_never_become_a_copy(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    with pytest.raises(DigestMismatchError):
        Copies(folder, SIZE).path(digest_of(BLOBS[0]), SIZE, lambda: [BLOBS[1]])
    assert list(folder.entries()) == []
