"""Adapters read when they are asked for: the manifests of many large ones together would take most of the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from registry.db import Reader, manifests
from registry.service import resolve
from registry.service.composer import Stored
from registry.service.context import Context
from schemas.adapter import AdapterManifest
from schemas.digests import Digest

T = TypeVar("T")


class Held(Mapping[Digest, T]):
    """A mapping that keeps its keys only and makes a value each time."""

    def __init__(self, digests: Iterable[Digest], read: Callable[[Digest], T]) -> None:
        self._digests = dict.fromkeys(digests)
        self._read = read

    def __getitem__(self, digest: Digest) -> T:
        if digest not in self._digests:
            raise KeyError(digest)
        return self._read(digest)

    def __iter__(self) -> Iterator[Digest]:
        return iter(self._digests)

    def __len__(self) -> int:
        return len(self._digests)


def adapters(reader: Reader, digests: Iterable[Digest]) -> Held[AdapterManifest]:
    """Manifests, while the reader is open."""

    def read(digest: Digest) -> AdapterManifest:
        with reader.passing():
            return manifests.load(reader, digest, AdapterManifest)

    return Held(digests, read)


def stored(context: Context, digests: Iterable[Digest]) -> Held[Stored]:
    """Manifests with the places of their tensors, each in a snapshot of its own."""

    def read(digest: Digest) -> Stored:
        with context.database.reading() as reader, reader.passing():
            adapter = manifests.load(reader, digest, AdapterManifest)
            return Stored(adapter, resolve.extents(context, reader, resolve.tensors_of(adapter)))

    return Held(digests, read)
