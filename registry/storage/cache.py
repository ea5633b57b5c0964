"""Verified local copies of what an object store holds: keyed by digest, and bounded."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from registry.storage.failures import folder_failures
from registry.storage.folder import FolderStore
from schemas.digests import Digest

LIMIT: Final = 64 * 2**30
"""Bytes of copies that are kept unless another bound is given."""
IN_USE_S: Final = 900.0
"""A copy that was asked for within so many seconds may still be about to be opened, and stays."""


class Copies:
    """Copies in a folder; when they are more than `limit` bytes, those that were not asked for longest go first.

    A reader that has a copy open or mapped keeps it; one that was only named stays for `IN_USE_S`, so the bound may be
    passed for that long.
    """

    def __init__(self, folder: FolderStore, limit: int, in_use_s: float = IN_USE_S) -> None:
        self._folder = folder
        self._limit = limit
        self._in_use_s = in_use_s
        self._trimming = threading.Lock()

    def path(self, digest: Digest, size: int, fetch: Callable[[], Iterable[bytes]]) -> Path:
        """A whole copy, fetched and checked when it is not there.

        Raises:
            DigestMismatchError: `BLOB_DIGEST_MISMATCH`, what was fetched has another digest.
        """
        if not self._folder.has(digest) or self._folder.size(digest) != size:
            self._folder.put_stream(fetch(), expect=digest)
            self._trim()
        path = self._folder.local_path(digest)
        with folder_failures(path):
            os.utime(path)
        return path

    def _trim(self) -> None:
        with self._trimming:
            copies = sorted(self._folder.entries(), key=lambda entry: entry.modified)
            over = sum(entry.size for entry in copies) - self._limit
            for entry in copies:
                if over <= 0 or time.time() - entry.modified.timestamp() < self._in_use_s:
                    return
                self._folder.delete(entry.digest)
                over -= entry.size
