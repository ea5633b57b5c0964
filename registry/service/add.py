"""Registering bases and adapters: blobs first, then every row of the change in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from registry.db import Change, blobs, evidence, files, manifests, names, statements, tensors
from registry.formats import (
    AdapterReading,
    BaseReading,
    Evidence,
    FileReading,
    Note,
    read_adapter,
    read_base,
)
from registry.service import resolve
from registry.service.base_bytes import weight_reader
from registry.service.context import Context
from registry.service.contracts import contract_of
from registry.service.results import Added
from schemas.base import BaseManifest
from schemas.canonical import JsonObject
from schemas.digests import Digest
from schemas.names import check_name
from schemas.publication import StatementManifest


def add_base(
    context: Context,
    directory: Path,
    name: str,
    *,
    store: bool = False,
    level: Evidence = "content",
    progress: Callable[[int], None] | None = None,
    jobs: int = 1,
    contracts: Sequence[str] = (),
    origin: Mapping[str, Note] | None = None,
) -> Added:
    """Register a base: a directory or one file. Its weights stay where they are unless `store` copies them.

    `contracts` are references of registered compute contracts: what is conditional in it. `origin` is where it was
    fetched from, which becomes a statement.
    """
    check_name(name)
    context.require("register", name)
    with context.audited("base.add", {"name": name}):
        reading = read_base(directory, evidence=level, progress=progress, jobs=jobs)
    if contracts:
        reading = replace(reading, manifest=with_contracts(context, reading.manifest, contracts))
    folder = directory if directory.is_dir() else directory.parent
    if store:
        _store_files(context, folder, reading.files)

    def work(change: Change) -> Added:
        digest = reading.manifest.digest
        created = manifests.put(change, reading.manifest)
        _put_files(change, digest, reading)
        evidence.put(change, digest, "evidence", level)
        if store:
            blobs.mark_present(change, [file.digests.digest for file in reading.files])
        else:
            tensors.put_base_files(change, digest, str(folder.absolute()), _base_files(folder, reading.files))
        if origin is not None:
            _say_origin(change, digest, origin, context.principal)
        return _named(change, name, "base", digest, created, {})

    return context.database.change("base.add", context.principal, work)


def add_adapter(
    context: Context, directory: Path, base_ref: str, name: str, *, origin: Mapping[str, Note] | None = None
) -> Added:
    """Register an adapter directory against its base.

    The same adapter under another slot, order or packaging is the one already held: only the name is new, if it is.
    `origin` is where it was fetched from, which becomes a statement.
    """
    check_name(name)
    context.require("register", name)
    with context.database.reading() as reader:
        on = resolve.digest_of(reader, base_ref)
        base = manifests.load(reader, on, BaseManifest)
    with TemporaryDirectory(prefix="adapter-") as scratch:
        with context.audited("adapter.add", {"name": name, "base": on}):
            reading = read_adapter(directory, base, scratch=Path(scratch), weight=weight_reader(context, base))
        digest = reading.digest
        held = _held(context, reading)
        if not held:
            _store_files(context, directory, reading.files, reading.made)

    def work(change: Change) -> Added:
        created = bool(manifests.put_stored(change, [stored(reading)]))
        if not held:
            _put_files(change, digest, reading)
            blobs.mark_present(change, [file.digests.digest for file in reading.files])
        evidence.put(change, digest, "binding", reading.binding)
        if created and reading.notes:
            statements.put(change, provenance(digest, reading, context.principal))
        if origin is not None:
            _say_origin(change, digest, origin, context.principal)
        return _named(change, name, "adapter", digest, created, told(reading.notes))

    return context.database.change("adapter.add", context.principal, work)


def _say_origin(change: Change, digest: Digest, origin: Mapping[str, Note], author: str) -> None:
    """Add where it was fetched from to what is known of its provenance, unless that was said."""
    before = statements.newest(change, digest, "provenance")
    known = {} if before is None else dict(before.body)
    said = known | dict(origin)
    if said != known:
        previous = None if before is None else before.digest
        statements.put(
            change,
            StatementManifest(topic="provenance", subject=digest, body=said, author=author, previous=previous),
        )


def with_contracts(context: Context, base: BaseManifest, refs: Sequence[str]) -> BaseManifest:
    """The base with registered compute contracts in it."""
    with context.database.reading() as reader:
        found = tuple(contract_of(reader, ref) for ref in refs)
    return base.model_copy(update={"compute_contracts": found})


def _held(context: Context, reading: AdapterReading) -> bool:
    """Whether manifest and bytes are here already, so that another packaging adds nothing."""
    with context.database.reading() as reader:
        return manifests.known(reader, reading.digest) and resolve.all_here(context, reader, reading.written.tensors)


def _store_files(
    context: Context, directory: Path, entries: tuple[FileReading, ...], made: Mapping[str, Path] = MappingProxyType({})
) -> None:
    for entry in entries:
        context.store.put_file(made.get(entry.path, directory / entry.path), expect=entry.digests.digest)


def _put_files(change: Change, digest: str, reading: BaseReading | AdapterReading) -> None:
    new_blobs = blobs.put(change, [entry.digests for entry in reading.files])
    files.put(change, digest, packed(reading))
    tensors.put(change, placed(reading), new_blobs)


def stored(reading: AdapterReading) -> manifests.Stored:
    """The rows of its manifest."""
    written = reading.written
    return manifests.adapter(written.digest, written.data, written.base, written.family)


def packed(reading: BaseReading | AdapterReading) -> list[tuple[str, Digest]]:
    """Its files as a packaging: path and blob."""
    return [(entry.path, entry.digests.digest) for entry in reading.files]


def placed(reading: BaseReading | AdapterReading) -> list[tensors.Location]:
    """Where its tensors lie."""
    return [tensors.Location(*place) for place in reading.locations]


def _base_files(directory: Path, entries: tuple[FileReading, ...]) -> list[tensors.BaseFile]:
    return [
        tensors.BaseFile(
            entry.path, entry.digests.digest, entry.digests.size, (directory / entry.path).stat().st_mtime_ns
        )
        for entry in entries
    ]


def _named(change: Change, name: str, kind: str, digest: str, created: bool, notes: JsonObject) -> Added:
    assigned = names.assign(change, name, kind, digest)
    return Added(digest=digest, kind=kind, name=name, version=assigned.version, created=created, notes=notes)


def provenance(digest: str, reading: AdapterReading, author: str) -> StatementManifest:
    """What an adapter's files say about it, as a statement."""
    return StatementManifest(topic="provenance", subject=digest, body=dict(reading.notes), author=author, previous=None)


def told(notes: Mapping[str, Note]) -> JsonObject:
    """Notes as JSON."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in notes.items()}
