"""Registering many adapters: read ahead, synced together, written many a transaction.

Whole batches are there or nothing of them. What a batch cannot hold, such as an adapter that is already there under
another name, is registered by itself after it. A directory that is refused is named and stops no other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from registry.db import Change, blobs, evidence, files, manifests, names, statements, tensors
from registry.errors import (
    ConflictError,
    DigestMismatchError,
    NotFoundError,
    ProblemError,
    RefusedError,
    UsageProblemError,
)
from registry.formats import AdapterReading, Refusal, read_many
from registry.formats.reader import OBJECTS
from registry.service import add, resolve
from registry.service.base_bytes import weight_files
from registry.service.context import Context
from registry.service.results import Added
from registry.storage import Shelf
from schemas.base import BaseManifest
from schemas.digests import Digest
from schemas.names import check_name

BATCH: Final = 256
"""Adapters a transaction."""
LOCATIONS: Final = 16_384
"""Tensors a transaction, about: they bound its memory."""


@dataclass(frozen=True)
class NotAdded:
    """A directory that was refused, and why."""

    directory: Path
    error: ProblemError


@dataclass(frozen=True)
class AddedMany:
    """What was registered and what was refused, each in the order given."""

    added: tuple[Added, ...]
    refused: tuple[NotAdded, ...]


@dataclass(frozen=True)
class _Item:
    """A directory, the name it shall have, and what was read."""

    place: int
    directory: Path
    name: str
    reading: AdapterReading

    @property
    def digest(self) -> Digest:
        return self.reading.digest

    def added(self, version: int, *, created: bool) -> Added:
        notes = add.told(self.reading.notes)
        return Added(digest=self.digest, kind="adapter", name=self.name, version=version, created=created, notes=notes)


@dataclass
class _Share:
    """The next directories: new ones by digest, their bytes stored; the others; and what is settled, by place."""

    fresh: dict[Digest, _Item] = field(default_factory=dict)
    others: list[tuple[int, Path]] = field(default_factory=list)
    settled: dict[int, Added | NotAdded] = field(default_factory=dict)


def add_adapters(
    context: Context,
    directories: Sequence[Path],
    base_ref: str,
    *,
    jobs: int = 1,
    batch: int = BATCH,
    progress: Callable[[int], None] | None = None,
) -> AddedMany:
    """Register adapter directories against one base, each under the name of its directory.

    Args:
        context: the registry.
        directories: adapters of any known producer.
        base_ref: what all of them were trained on.
        jobs: processes that read; with 1 this process does.
        batch: adapters a transaction.
        progress: called with the number of directories just settled.

    Raises:
        UnavailableError: database or store are full or away. What was committed stays, and a repeat goes on from there.
    """
    context.require("register", *(directory.absolute().name for directory in directories))
    with context.database.reading() as reader:
        base = manifests.load(reader, resolve.digest_of(reader, base_ref), BaseManifest)
    results: dict[int, Added | NotAdded] = {}
    with (
        _collecting_rarely(),
        context.store.shelf() as shelf,
        closing(read_many(directories, base, weight_files(context, base), jobs, shelf)) as readings,
        closing(
            _one_ahead(
                partial(_prepared, context, base.digest, shelf),
                _shares(zip(directories, readings, strict=True), batch),
            )
        ) as prepared,
    ):
        for share in prepared:
            settled = _registered(context, base.digest, share)
            results |= settled
            if progress is not None:
                progress(len(settled))
    ordered = [results[place] for place in sorted(results)]
    return AddedMany(
        tuple(item for item in ordered if isinstance(item, Added)),
        tuple(item for item in ordered if isinstance(item, NotAdded)),
    )


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Look for garbage less often in this process: readings and rows are in no circles, and there are very many."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


_Read = tuple[int, Path, AdapterReading | Refusal]


def _shares(readings: Iterable[tuple[Path, AdapterReading | Refusal]], batch: int) -> Iterator[list[_Read]]:
    share: list[_Read] = []
    locations = 0
    for place, (directory, reading) in enumerate(readings):
        share.append((place, directory, reading))
        locations += len(reading.locations) if isinstance(reading, AdapterReading) else 0
        if len(share) == batch or locations >= LOCATIONS:
            yield share
            share, locations = [], 0
    if share:
        yield share


def _one_ahead(work: Callable[[list[_Read]], _Share], shares: Iterator[list[_Read]]) -> Generator[_Share, None, None]:
    """The prepared shares; the next one is read and stored while the database takes the one before."""

    def following() -> _Share | None:
        share = next(shares, None)
        return None if share is None else work(share)

    with ThreadPoolExecutor(1, "ahead") as thread:
        waiting = thread.submit(following)
        while (share := waiting.result()) is not None:
            waiting = thread.submit(following)
            yield share


def _prepared(context: Context, base: Digest, shelf: Shelf, read: list[_Read]) -> _Share:
    """Tell the new from the known and the refused, and store the bytes of the new."""
    share = _Share()
    items = [item for item in (_item(context, base, share, *one) for one in read) if item is not None]
    with context.database.reading() as reader:
        known = manifests.all_known(reader, (item.digest for item in items))
        taken = names.all_known(reader, (item.name for item in items))
        held = names.of_all(reader, known)
        for item in items:
            version = dict(held.get(item.digest, ())).get(item.name)
            if version is not None and resolve.all_here(context, reader, item.reading.written.tensors):
                share.settled[item.place] = item.added(version, created=False)
            elif item.digest in known or item.digest in share.fresh or item.name in taken or item.reading.made:
                share.others.append((item.place, item.directory))
            else:
                share.fresh[item.digest] = item
                taken |= {item.name}
    try:
        _store(context, shelf, share.fresh.values())
    except (DigestMismatchError, UsageProblemError):
        # a file changed after it was read: one by one the right directory is refused
        share.others += [(item.place, item.directory) for item in share.fresh.values()]
        share.fresh.clear()
    for item in items:
        if item.digest not in share.fresh:
            for file in item.reading.files:
                shelf.drop(file.digests.digest)
    return share


def _store(context: Context, shelf: Shelf, items: Iterable[_Item]) -> None:
    """Store the files of adapters: those on the shelf as they were read, the others from where they lie."""
    wanted = {file.digests: item.directory / file.path for item in items for file in item.reading.files}
    shelved = [staged for staged in map(shelf.find, wanted) if staged is not None]
    for staged in shelved:
        wanted.pop(staged.digests)
    context.store.put_files({digests.digest: path for digests, path in wanted.items()}, shelved)


def _item(
    context: Context, base: Digest, share: _Share, place: int, directory: Path, reading: AdapterReading | Refusal
) -> _Item | None:
    name = directory.absolute().name
    try:
        check_name(name)
        if isinstance(reading, AdapterReading):
            return _Item(place, directory, name, reading)
        with context.audited("adapter.add", {"name": name, "base": base}):
            raise reading
    except (RefusedError, UsageProblemError) as error:
        share.settled[place] = NotAdded(directory, error)
    return None


def _registered(context: Context, base: Digest, share: _Share) -> dict[int, Added | NotAdded]:
    settled = dict(share.settled)
    others = list(share.others)
    if share.fresh:
        written = context.database.change(
            "adapter.add", context.principal, partial(_write, items=tuple(share.fresh.values()))
        )
        for digest, item in share.fresh.items():
            if digest in written:
                settled[item.place] = item.added(1, created=True)
            else:
                others.append((item.place, item.directory))
    for place, directory in sorted(others):
        settled[place] = _alone(context, base, directory)
    return settled


def _alone(context: Context, base: Digest, directory: Path) -> Added | NotAdded:
    try:
        return add.add_adapter(context, directory, base, directory.absolute().name)
    except (RefusedError, UsageProblemError, NotFoundError, ConflictError, DigestMismatchError) as error:
        return NotAdded(directory, error)


def _write(change: Change, items: Sequence[_Item]) -> frozenset[Digest]:
    """Every row of the new adapters; those that another change brought meanwhile are left out."""
    taken = names.all_known(change, (item.name for item in items))
    free = [item for item in items if item.name not in taken]
    new = manifests.put_stored(change, [add.stored(item.reading) for item in free])
    mine = {item.digest: item for item in free if item.digest in new}
    readings = {digest: item.reading for digest, item in mine.items()}
    arrived = [file.digests for reading in readings.values() for file in reading.files]
    new_blobs = blobs.put(change, arrived)
    files.put_first(change, {digest: add.packed(reading) for digest, reading in readings.items()})
    tensors.put(change, [place for reading in readings.values() for place in add.placed(reading)], new_blobs)
    blobs.mark_present(change, [item.digest for item in arrived])
    evidence.put_first(change, {digest: reading.binding for digest, reading in readings.items()}, "binding")
    said = [
        add.provenance(digest, item.reading, change.principal) for digest, item in mine.items() if item.reading.notes
    ]
    statements.put_first(change, said)
    names.assign_first(change, "adapter", {item.name: digest for digest, item in mine.items()})
    return frozenset(mine)
