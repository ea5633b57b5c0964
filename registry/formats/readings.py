"""What reading a directory gives: a manifest, the files it came in and where each tensor lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.digests import BlobDigests, Digest

Evidence = Literal["content", "structural", "declared"]
Binding = Literal["declared", "witnessed"]
Progress = Callable[[int], None]
"""Called with the number of bytes just read."""
Note = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True)
class FileReading:
    """One file by its path inside the directory (POSIX, relative)."""

    path: str
    digests: BlobDigests


class TensorLocation(NamedTuple):
    """Where a tensor's bytes lie: `offset` and `length` in bytes, absolute in the blob `file`."""

    tensor: Digest
    file: Digest
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class BaseReading:
    """A base directory: below evidence `content` no weight file is hashed and no location is known."""

    manifest: BaseManifest
    files: tuple[FileReading, ...]
    locations: tuple[TensorLocation, ...]


class Written(NamedTuple):
    """An adapter's manifest as it is stored: its canonical bytes, their digest, and what else of it is looked up.

    `tensors` are the digests of all tensors it names.
    """

    digest: Digest
    data: bytes
    base: Digest
    family: str
    tensors: frozenset[Digest]


@dataclass(frozen=True)
class AdapterReading:
    """An adapter directory.

    `notes` is what its files say and identity does not hold: producer, targets, dropout, wrapper rule. `conditions`
    there are codes a reader should know, such as `B_ALL_ZERO`: every lora_B is zero, so the adapter does nothing.
    `binding` is `witnessed` when the directory carries a copy of a base tensor that is the base's own.
    `made` says where those of `files` lie that are not in the directory: stored tensors in another arrangement. They
    are gone where another process read.
    """

    written: Written
    files: tuple[FileReading, ...]
    locations: tuple[TensorLocation, ...]
    notes: Mapping[str, Note]
    made: Mapping[str, Path] = field(default_factory=dict)
    binding: Binding = "declared"

    @property
    def digest(self) -> Digest:
        """The adapter."""
        return self.written.digest

    @cached_property
    def manifest(self) -> AdapterManifest:
        """The manifest, read from its bytes when it is asked for."""
        return AdapterManifest.parse(self.written.data)
