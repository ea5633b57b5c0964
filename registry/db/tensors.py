"""Where tensor bytes lie: in blobs, and in base files that are referenced where they are."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from sqlalchemy import select

from registry.db.prepared import Chosen, Values
from registry.db.rows import BaseLocationRow, TensorLocationRow
from registry.db.session import Change, Reader
from schemas.digests import Digest

_LOCATIONS: Final = Chosen(
    select(
        TensorLocationRow.tensor,
        TensorLocationRow.blob,
        TensorLocationRow.offset,
        TensorLocationRow.length,
        TensorLocationRow.dtype,
        TensorLocationRow.shape_json,
    ),
    TensorLocationRow.tensor,
)


class Location(NamedTuple):
    """`length` bytes from byte `offset` of a blob are one tensor of this dtype and shape (elements)."""

    tensor: Digest
    blob: Digest
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class BaseFile:
    """A base file as it was read: relative path, content, size in bytes, time of change in nanoseconds."""

    path: str
    blob: Digest
    size: int
    mtime_ns: int


def put(change: Change, locations: Iterable[Location], new_blobs: Container[Digest] = ()) -> int:
    """Record where tensors lie; the number of new locations.

    In `new_blobs`, which this change was the first to record, nothing can be known to lie: they save the look-up.
    """
    rows = {(place.tensor, place.blob, place.offset): _row(place) for place in locations}
    new = [row for (_, blob, _), row in rows.items() if blob in new_blobs]
    change.write(TensorLocationRow, new)
    others = [row for (_, blob, _), row in rows.items() if blob not in new_blobs]
    return len(new) + len(change.ensure(TensorLocationRow, others))


def locations(reader: Reader, tensors: Iterable[Digest]) -> dict[Digest, tuple[Location, ...]]:
    """Every known place of each tensor; a tensor without one is absent."""
    found: dict[Digest, tuple[Location, ...]] = {}
    for tensor, blob, offset, length, dtype, shape in _LOCATIONS.rows(reader.connection, tensors):
        place = Location(tensor, blob, offset, length, dtype, _shape(shape))
        found[tensor] = (*found.get(tensor, ()), place)
    return found


def put_base_files(change: Change, base: Digest, directory: str, entries: Iterable[BaseFile]) -> int:
    """Record where the files of a referenced base lie; the number of new facts."""
    rows: list[Values] = [
        {
            "base": base,
            "directory": directory,
            "path": entry.path,
            "blob": entry.blob,
            "size": entry.size,
            "mtime_ns": entry.mtime_ns,
            "created": change.now,
        }
        for entry in entries
    ]
    return len(change.ensure(BaseLocationRow, rows))


def base_files(reader: Reader, base: Digest) -> tuple[BaseLocationRow, ...]:
    """Every place a base's files were seen, newest first."""
    mine = select(BaseLocationRow).where(BaseLocationRow.base == base)
    newest = BaseLocationRow.created.desc()
    return reader.all(mine.order_by(newest, BaseLocationRow.directory, BaseLocationRow.path))


def _row(location: Location) -> Values:
    return {
        "tensor": location.tensor,
        "blob": location.blob,
        "offset": location.offset,
        "length": location.length,
        "dtype": location.dtype,
        "shape_json": f"[{','.join(map(str, location.shape))}]",
    }


@lru_cache(maxsize=256)
def _shape(text: str) -> tuple[int, ...]:
    """Few shapes are those of many tensors."""
    return tuple(json.loads(text))
