"""Content-addressed bytes: a folder or an object store, one behaviour (docs/concepts.md, "Identity")."""

from registry.storage.folder import FolderStore
from registry.storage.hashing import hash_file
from registry.storage.objects import ObjectStore
from registry.storage.opening import open_store
from registry.storage.shelf import Shelf
from registry.storage.store import BlobEntry, BlobStore

__all__ = ["BlobEntry", "BlobStore", "FolderStore", "ObjectStore", "Shelf", "hash_file", "open_store"]
