"""Weights of a registered base where their bytes are at hand: in the store, or unchanged where they were hashed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from registry.db import manifests, tensors
from registry.db.rows import BaseLocationRow
from registry.errors import NotFoundError, Problem
from registry.formats.snapshot import Floats, ReadWeight
from registry.formats.weights import WeightFiles, WeightPlace
from registry.service import resolve
from registry.service.context import Context
from schemas.base import BaseManifest, WeightRef
from schemas.digests import Digest

LARGEST_WEIGHT: Final = 2**30
"""Bytes; a comparison is worth no more."""


def weight_reader(context: Context, base: BaseManifest) -> ReadWeight:
    """Read weights by name as float32; null for one that is not at hand, and nothing is looked up before it is asked.

    A referenced file counts while size and time are those it was hashed with. Weights of a packed base are not at hand:
    their codes, or the order of their rows, are no numbers to compare with.
    """
    weights = comparable(base)

    def read(name: str) -> Floats | None:
        return WeightFiles(_places(context, base, {name: weights[name]} if name in weights else {}))(name)

    return read


def weight_files(context: Context, base: BaseManifest) -> WeightFiles:
    """The same for many adapters: every weight is looked up now, and those last read are kept."""
    return WeightFiles(_places(context, base, comparable(base)))


def weight_place(context: Context, ref: str, name: str) -> WeightPlace:
    """Where the bytes of one weight of a base lie. Raises NotFoundError `WEIGHT_AWAY`."""
    with context.database.reading() as reader:
        base = manifests.load(reader, resolve.digest_of(reader, ref), BaseManifest)
    weights = comparable(base)
    found = _places(context, base, {name: weights[name]} if name in weights else {})
    if name not in found:
        raise NotFoundError(
            Problem(
                code="WEIGHT_AWAY",
                path=(name[:200],),
                expected=f"a weight of base {base.digest} that can be read here",
                observed="no such bytes",
                hint="Register the base with its bytes (--store), or name one of its weights.",
            )
        )
    return found[name]


def comparable(base: BaseManifest) -> dict[str, WeightRef]:
    """The weights that factors can be compared with."""
    if base.quantizer != "none" or isinstance(base.weights, str):
        return {}
    return {name: ref for name, ref in base.weights.items() if ref.tensor != "not_verified"}


def _places(context: Context, base: BaseManifest, wanted: Mapping[str, WeightRef]) -> dict[str, WeightPlace]:
    """Where weights lie whose bytes are at hand."""
    if not wanted:
        return {}
    with context.database.reading() as reader:
        known = tensors.locations(reader, (ref.tensor for ref in wanted.values()))
        rows = {row.blob: row for row in reversed(tensors.base_files(reader, base.digest))}
    blobs = {place.blob for places in known.values() for place in places}
    files = {blob: file for blob in blobs if (file := file_of(context, blob, rows.get(blob))) is not None}
    return {
        name: WeightPlace(files[place.blob], place.offset, place.length, ref.dtype, ref.shape)
        for name, ref in wanted.items()
        for place in [next((place for place in known.get(ref.tensor, ()) if place.blob in files), None)]
        if place is not None and place.length <= LARGEST_WEIGHT
    }


def file_of(context: Context, blob: Digest, row: BaseLocationRow | None) -> Path | None:
    """The file with a blob's bytes: in the store, or a referenced one that did not change."""
    if context.store.has(blob):
        return context.store.local_path(blob)
    path = None if row is None else Path(row.directory) / row.path
    if row is None or path is None or not _unchanged(path, row.size, row.mtime_ns):
        return None
    return path


def _unchanged(path: Path, size: int, mtime_ns: int) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (size, mtime_ns)
