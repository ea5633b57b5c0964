"""Weights of a registered base where their bytes are at hand: in the store, or unchanged where they were hashed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from registry.db import tensors
from registry.formats.snapshot import Floats, ReadWeight
from registry.formats.values import floats
from registry.service.context import Context
from schemas.base import BaseManifest, WeightRef
from schemas.digests import Digest

LARGEST_WEIGHT: Final = 2**30
"""Bytes; a comparison is worth no more."""


def weight_reader(context: Context, base: BaseManifest) -> ReadWeight:
    """Read weights by name as float32; null for one that is not at hand, and nothing is looked up before it is asked.

    A referenced file counts while size and time are those it was hashed with.
    """
    weights: dict[str, WeightRef] = {} if isinstance(base.weights, str) else dict(base.weights)

    def read(name: str) -> Floats | None:
        ref = weights.get(name)
        if ref is None or ref.tensor == "not_verified":
            return None
        place = _place(context, base.digest, ref.tensor)
        if place is None or place[2] > LARGEST_WEIGHT:
            return None
        path, offset, length = place
        with path.open("rb") as stream:
            stream.seek(offset)
            return floats(stream.read(length), ref.dtype, ref.shape)

    return read


def _place(context: Context, base: Digest, tensor: Digest) -> tuple[Path, int, int] | None:
    """The file, offset and length of a tensor."""
    with context.database.reading() as reader:
        known = tensors.locations(reader, [tensor]).get(tensor, ())
        files = {row.blob: row for row in reversed(tensors.base_files(reader, base))}
    for place in known:
        if context.store.has(place.blob):
            return context.store.local_path(place.blob), place.offset, place.length
        row = files.get(place.blob)
        if row is not None and _unchanged(Path(row.directory) / row.path, row.size, row.mtime_ns):
            return Path(row.directory) / row.path, place.offset, place.length
    return None


def _unchanged(path: Path, size: int, mtime_ns: int) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (size, mtime_ns)
