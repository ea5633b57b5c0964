"""Blobs in an object store through obstore: S3 and everything that speaks it, or memory.

The same layout as in a folder: ``<prefix>/blobs/<first two hex>/<hex>``. A put is received in a local folder first,
because its address is known only after its last byte, and a whole upload becomes visible at once. Puts overwrite
rather than create conditionally: the content is the same, and a damaged or ageing object must become whole and young.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import obstore
from obstore.store import ObjectStore as Remote

from registry.errors import NotFoundError
from registry.hashing import BLOCK_BYTES, chunk_blocks
from registry.storage.cache import LIMIT, Copies
from registry.storage.failures import missing, object_failures, store_away
from registry.storage.folder import FolderStore
from registry.storage.pieces import Pieces
from registry.storage.staging import Staged
from registry.storage.store import STREAMED_BYTES, BlobEntry, BlobStore, address
from schemas.digests import PREFIX, Digest
from schemas.names import is_whole_digest

_ROOT: Final = "blobs/"
_MOST_PARTS: Final = 9_000
_PART_BYTES: Final = 8 * 2**20
_PARTS_AT_ONCE: Final = 4
_PAGE: Final = 1_000


class ObjectStore(BlobStore):
    """An object store with a local folder beside it, for staging and for verified copies of what was read whole.

    The cache may be emptied at any time; a copy counts only while the object store still holds the blob.
    """

    def __init__(self, remote: Remote, url: str, cache: Path, cache_limit: int = LIMIT) -> None:
        self._remote = remote
        self._url = url
        self._cache = FolderStore(cache)
        self._copies = Copies(self._cache, cache_limit)
        super().__init__(self._cache.staging, Pieces(self._cache.partials.folder, remote, url), self._cache.scratch)

    def has(self, digest: Digest) -> bool:
        """Whether the blob is there."""
        try:
            self.size(digest)
        except NotFoundError:
            return False
        return True

    def size(self, digest: Digest) -> int:
        """Its size in bytes."""
        key = _key(digest)
        with self._reading(digest):
            return obstore.head(self._remote, key)["size"]

    def modified(self, digest: Digest) -> datetime:
        """When it was last put."""
        key = _key(digest)
        with self._reading(digest):
            return obstore.head(self._remote, key)["last_modified"]

    def local_path(self, digest: Digest) -> Path:
        """A verified copy in the cache, fetched when it is not there whole.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`, the object's bytes are not those of `digest`.
        """
        return self._copies.path(digest, self.size(digest), lambda: self._chunks(digest))

    def delete(self, digest: Digest) -> None:
        """Remove the blob and the copy in this cache; one that is not there is removed already."""
        key = _key(digest)
        self._cache.delete(digest)
        with object_failures(self._url), suppress(FileNotFoundError):
            obstore.delete(self._remote, key)

    def entries(self) -> Iterator[BlobEntry]:
        """Every stored blob, in no particular order; objects that are no blobs are passed over."""
        with object_failures(self._url):
            for page in obstore.list(self._remote, _ROOT.rstrip("/"), chunk_size=_PAGE):
                for item in page:
                    digest = PREFIX + item["path"].rpartition("/")[2]
                    if is_whole_digest(digest) and item["path"] == _key(digest):
                        yield BlobEntry(digest, item["size"], item["last_modified"])

    def _keep(self, staged: Staged) -> None:
        part = max(_PART_BYTES, -(-staged.digests.size // _MOST_PARTS))
        key = _key(staged.digests.digest)
        with object_failures(self._url):
            try:
                obstore.put(self._remote, key, staged.path, chunk_size=part, max_concurrency=_PARTS_AT_ONCE)
            except FileNotFoundError as error:
                raise store_away(self._url, "no such bucket or container") from error

    def _blocks(self, digest: Digest) -> Iterator[memoryview]:
        return chunk_blocks(self._chunks(digest))

    def _stream(self, digest: Digest, start: int, end: int) -> Iterator[bytes]:
        with self._reading(digest):
            found = obstore.get(self._remote, _key(digest), options={"range": (start, end)})
            for chunk in found.stream(min_chunk_size=STREAMED_BYTES):
                yield bytes(chunk)

    def _range(self, digest: Digest, start: int, end: int) -> bytes:
        with self._reading(digest):
            return bytes(obstore.get_range(self._remote, _key(digest), start=start, end=end))

    def _chunks(self, digest: Digest) -> Iterator[bytes]:
        with self._reading(digest):
            for chunk in obstore.get(self._remote, _key(digest)).stream(min_chunk_size=BLOCK_BYTES):
                yield bytes(chunk)

    @contextmanager
    def _reading(self, digest: Digest) -> Iterator[None]:
        with object_failures(self._url):
            try:
                yield
            except FileNotFoundError as error:
                raise missing(digest) from error


def _key(digest: Digest) -> str:
    folder, name = address(digest)
    return f"{_ROOT}{folder}/{name}"
