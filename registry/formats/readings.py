"""What reading a directory gives: a manifest, the files it came in and where each tensor lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self

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


@dataclass(frozen=True)
class AdapterReading:
    """An adapter directory.

    `notes` is what its files say and identity does not hold: producer, targets, dropout, wrapper rule. `conditions`
    there are codes a reader should know, such as `B_ALL_ZERO`: every lora_B is zero, so the adapter does nothing.
    `binding` is `witnessed` when the directory carries a copy of a base tensor that is the base's own.
    `made` says where those of `files` lie that are not in the directory: stored tensors in another arrangement.
    """

    manifest: AdapterManifest
    files: tuple[FileReading, ...]
    locations: tuple[TensorLocation, ...]
    notes: Mapping[str, Note]
    made: Mapping[str, Path] = field(default_factory=dict)
    binding: Binding = "declared"


@dataclass(frozen=True)
class ReadAhead:
    """What registering many needs of a reading, in a form that goes from one process to another at little cost.

    `canonical` is the manifest, whose `digest`, `base` and `family` are taken from it; `tensors` are the digests of all
    tensors it names. `rearranged` says that `AdapterReading.made` was not empty: those files are gone.
    """

    digest: Digest
    canonical: bytes
    base: Digest
    family: str
    tensors: frozenset[Digest]
    files: tuple[FileReading, ...]
    locations: tuple[TensorLocation, ...]
    notes: Mapping[str, Note]
    binding: Binding
    rearranged: bool

    @classmethod
    def of(cls, reading: AdapterReading) -> Self:
        """The same without objects of the manifest."""
        manifest = reading.manifest
        factors = [ref for item in manifest.factors for ref in (item.a, item.b, *item.extra.values())]
        whole = [item.value for item in manifest.full_replacements]
        return cls(
            digest=manifest.digest,
            canonical=manifest.canonical(),
            base=manifest.base,
            family=manifest.family,
            tensors=frozenset(ref.tensor for ref in (*factors, *whole)),
            files=reading.files,
            locations=reading.locations,
            notes=reading.notes,
            binding=reading.binding,
            rearranged=bool(reading.made),
        )
