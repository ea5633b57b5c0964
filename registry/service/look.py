"""Reading: lists, one manifest, differences, lineage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from registry.db import Reader, evidence, files, lineage, manifests, purges, records, statements
from registry.db import names as named
from registry.db.rows import ManifestRow
from registry.service import resolve
from registry.service.context import Context
from registry.service.results import (
    Difference,
    FileEntry,
    Lineage,
    LineageNode,
    Listed,
    NameListed,
    NamePage,
    Page,
    Shown,
    State,
)
from schemas.canonical import JsonValue, canonical_bytes
from schemas.digests import Digest


def ls(context: Context, wanted: manifests.ManifestFilter, after: str | None = None, limit: int = 50) -> Page:
    """Manifests, newest first, a page at a time; `base` may be any reference of one."""
    with context.database.reading() as reader:
        if wanted.base is not None:
            wanted = replace(wanted, base=resolve.digest_of(reader, wanted.base))
        page = manifests.page(reader, wanted, after, limit)
        digests = [row.digest for row in page.items]
        gone: dict[Digest, State] = dict.fromkeys(statements.yanked(reader, digests), "yanked")
        gone |= dict.fromkeys(purges.purged(reader, digests), "purged")
        return Page(items=tuple(_listed(reader, row, gone.get(row.digest)) for row in page.items), next=page.next)


def names(
    context: Context, prefix: str = "", kind: str | None = None, after: str | None = None, limit: int = 50
) -> NamePage:
    """A page of names that begin with `prefix`, by name, each with its newest version."""
    with context.database.reading() as reader:
        page = named.page(reader, kind, after, limit, prefix=prefix)
        newest = named.all_newest(reader, [row.name for row in page.items])
        items = [(row, newest.get(row.name)) for row in page.items]
        return NamePage(
            items=tuple(
                NameListed(
                    name=row.name,
                    kind=row.kind,
                    version=None if now is None else now.version,
                    digest=None if now is None else now.digest,
                )
                for row, now in items
            ),
            next=page.next,
        )


def show(context: Context, ref: str) -> Shown:
    """Everything known about one manifest, re-hashed on the way."""
    with context.database.reading() as reader:
        digest = resolve.asked(reader, ref)
        manifest = manifests.get(reader, digest)
        measured = records.measurements(reader, digest)
        ran = records.run_records(reader, digest)
        return Shown(
            digest=digest,
            kind=manifest.KIND,
            refs=resolve.names_of(reader, digest),
            manifest=manifest.document(),
            files=_files(reader, digest),
            evidence=evidence.level(reader, digest, "evidence"),
            binding=evidence.level(reader, digest, "binding"),
            measurement=measured[-1] if measured else None,
            run_record=ran[-1] if ran else None,
            statements=tuple(item.document() for item in statements.of(reader, digest)),
        )


def diff(context: Context, left: str, right: str) -> tuple[Difference, ...]:
    """Field-by-field difference of two manifests."""
    one, other = show(context, left).manifest, show(context, right).manifest
    flat_one, flat_other = dict(_flatten(one)), dict(_flatten(other))
    return tuple(
        Difference(path=path, left=flat_one.get(path), right=flat_other.get(path))
        for path in sorted(flat_one.keys() | flat_other.keys())
        if flat_one.get(path) != flat_other.get(path)
    )


def line(context: Context, ref: str, direction: Literal["up", "down"], *, live: bool = False) -> Lineage:
    """Ancestors (`up`) or descendants (`down`); with `live` also the channels that serve it or what was made of it."""
    with context.database.reading() as reader:
        digest = resolve.asked(reader, ref)
        walk = lineage.ancestors if direction == "up" else lineage.descendants
        found = walk(reader, digest)
        serving = lineage.live(reader, digest) if live else ()
        refs = resolve.names_of_all(reader, [node.digest for node in found.nodes])
        return Lineage(
            root=digest,
            direction=direction,
            nodes=tuple([LineageNode(item, kind, refs.get(item, ()), depth) for item, kind, depth in found.nodes]),
            links=found.edges,
            live=tuple(f"{row.channel}@g{row.number}" for row in serving),
        )


def _listed(reader: Reader, row: ManifestRow, state: State | None) -> Listed:
    return Listed(
        digest=row.digest,
        kind=row.kind,
        refs=resolve.names_of(reader, row.digest),
        base=row.base,
        family=row.family,
        method=row.method,
        outcome=row.outcome,
        state=state,
    )


def _files(reader: Reader, digest: Digest) -> tuple[FileEntry, ...]:
    return tuple(
        FileEntry(path=entry.path, blob=entry.blob, sha256=entry.sha256, size=entry.size)
        for packaging in files.packagings(reader, digest)
        for entry in packaging.files
    )


def _flatten(value: JsonValue, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _flatten(item, f"{path}/{index}")
    else:
        yield path, canonical_bytes(value).decode()
