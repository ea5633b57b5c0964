"""The contract over a folder and over memory."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from registry.errors import DigestMismatchError
from registry.storage import BlobStore, FolderStore, ObjectStore
from tests.registry.storage.contract import ABC_DIGEST, BlobStoreContract


class TestFolder(BlobStoreContract):
    """A local folder."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return FolderStore(tmp_path / "store")

    def plant(self, store: BlobStore, digest: str, data: bytes) -> None:
        path = store.local_path(digest)
        path.chmod(0o644)
        path.write_bytes(data)

    def plant_stranger(self, store: BlobStore) -> None:
        assert isinstance(store, FolderStore)
        (store.root / "blobs" / "notes.txt").write_text("not a blob")
        shard = store.root / "blobs" / "00"
        shard.mkdir()
        (shard / "notes.txt").write_text("not a blob")
        (shard / ("ff" * 32)).write_text("in the wrong folder")
        (shard / ("00" * 32)).mkdir()


class TestMemory(BlobStoreContract):
    """An object store in memory."""

    remote: MemoryStore

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        self.remote = MemoryStore()
        return ObjectStore(self.remote, "memory://", tmp_path / "cache")

    def plant(self, store: BlobStore, digest: str, data: bytes) -> None:
        assert store.has(digest)
        name = digest.removeprefix("blake3:")
        obstore.put(self.remote, f"blobs/{name[:2]}/{name}", data)

    def plant_stranger(self, store: BlobStore) -> None:
        assert not list(store.entries())
        obstore.put(self.remote, "blobs/notes.txt", b"not a blob")
        obstore.put(self.remote, "blobs/00/" + "ff" * 32, b"in the wrong place")

    def test_changed_bytes_never_reach_the_cache(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        self.plant(store, ABC_DIGEST, b"abb")
        with pytest.raises(DigestMismatchError):
            store.local_path(ABC_DIGEST)
        self.plant(store, ABC_DIGEST, b"abc")
        assert store.local_path(ABC_DIGEST).read_bytes() == b"abc"

    def test_a_cached_copy_that_was_cut_short_is_fetched_again(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        copy = store.local_path(ABC_DIGEST)
        copy.chmod(0o644)
        copy.write_bytes(b"a")
        assert store.local_path(ABC_DIGEST).read_bytes() == b"abc"

    def test_a_copy_does_not_outlive_its_blob(self, store: BlobStore) -> None:
        store.put_bytes(b"abc")
        copy = store.local_path(ABC_DIGEST)
        store.delete(ABC_DIGEST)
        assert not copy.exists()
