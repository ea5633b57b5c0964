"""From a URL to a store."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from obstore.exceptions import BaseError
from obstore.store import MemoryStore, from_url

from registry.errors import Problem, UsageProblemError
from registry.storage.cache import LIMIT
from registry.storage.folder import FolderStore
from registry.storage.objects import ObjectStore
from registry.storage.store import BlobStore

_REMOTE: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss"})
_RETRIES: Final = 4
_PATIENCE: Final = timedelta(seconds=30)


def open_store(url: str, *, cache: Path | None = None, cache_limit: int = LIMIT) -> BlobStore:
    """The store at a path, ``file:///path``, ``s3://bucket/prefix`` (also gs, az) or ``memory://``.

    Credentials and endpoints of object stores come from their own environment (``AWS_*`` and so on); `cache` is the
    folder for their staging and verified copies, by default ``$XDG_CACHE_HOME/adapter-registry/blobs``, and
    `cache_limit` the bytes of copies that are kept.

    Raises:
        UsageProblemError: `STORE_URL_INVALID`.
        UnavailableError: the folder is not there and cannot be created.
    """
    scheme, separator, place = url.partition("://")
    if url and not separator:
        return FolderStore(Path(url))
    if scheme == "file" and place.startswith("/"):
        return FolderStore(Path(unquote(place)))
    cache = cache or _default_cache()
    if scheme == "memory":
        return ObjectStore(MemoryStore(), url, cache)
    if "@" in place:
        raise UsageProblemError(_problem("credentials in the URL"))
    if scheme not in _REMOTE or not place:
        raise UsageProblemError(_problem(url))
    try:
        remote = from_url(url, retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE})
    except (BaseError, ValueError) as error:
        raise UsageProblemError(_problem(f"{url}: {error}")) from error
    return ObjectStore(remote, url, cache, cache_limit)


def _default_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "adapter-registry" / "blobs"


def _problem(observed: str) -> Problem:
    return Problem(
        code="STORE_URL_INVALID",
        expected="a folder, file:///path, or s3://bucket/prefix",
        observed=observed[:200],
        hint="Put credentials and endpoints into the environment of the object store (AWS_ACCESS_KEY_ID, …).",
    )
