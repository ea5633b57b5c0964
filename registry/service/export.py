"""Handing out: a directory that PEFT loads, written beside and renamed, never over something."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

from registry.db import Reader, channels
from registry.errors import ConflictError, Problem
from registry.formats import write_peft
from registry.service import resolve
from registry.service.context import Context
from registry.service.results import Exported, FileEntry
from registry.storage import hash_file
from schemas.base import TensorRef
from schemas.digests import Digest
from schemas.names import ChannelRef, parse_ref


def export(context: Context, ref: str, directory: Path, *, base_name: str) -> Exported:
    """Write the adapter a reference means as a PEFT directory, with `registry.json` beside the weights.

    Raises:
        ConflictError: `TARGET_EXISTS`; a directory is never written over, since a server may hold it open.
    """
    if directory.exists():
        raise ConflictError(_exists(directory))
    with context.database.reading() as reader:
        artifact = resolve.digest_of(reader, ref)
        adapter = resolve.adapter_of(reader, artifact)
        held = resolve.places(context, reader, resolve.tensors_of(adapter))
        generation = _generation(reader, ref)

    def read_tensor(wanted: TensorRef) -> bytes:
        place = held[wanted.tensor]
        return context.store.read(place.blob, place.offset, place.length)

    partial = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir(parents=True)
        written = write_peft(partial, adapter, read_tensor, base_name=base_name)
        entries = tuple(_entry(partial, path) for path in written)
        _write_card(partial, artifact, adapter.digest, entries, generation)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Exported(directory=str(directory), artifact=artifact, adapter=adapter.digest, files=entries)


def _generation(reader: Reader, ref: str) -> dict[str, str | int] | None:
    """Channel, generation and cache identity, when the reference is a channel's generation."""
    parsed = parse_ref(ref)
    if not isinstance(parsed, ChannelRef):
        return None
    row = (
        channels.head(reader, parsed.channel)
        if parsed.generation is None
        else channels.at(reader, parsed.channel, parsed.generation)
    )
    assert row is not None, "the reference was resolved in the same snapshot"
    return {"channel": row.channel, "generation": row.number, "publication": row.publication}


def _write_card(
    folder: Path,
    artifact: Digest,
    adapter: Digest,
    entries: tuple[FileEntry, ...],
    generation: dict[str, str | int] | None,
) -> None:
    card = {
        "artifact": artifact,
        "adapter": adapter,
        "generation": generation,
        "files": [entry.document() for entry in entries],
    }
    (folder / "registry.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


def _entry(folder: Path, path: Path) -> FileEntry:
    digests = hash_file(path)
    return FileEntry(
        path=path.relative_to(folder).as_posix(), blob=digests.digest, sha256=digests.sha256, size=digests.size
    )


def _exists(directory: Path) -> Problem:
    return Problem(
        code="TARGET_EXISTS",
        expected="a directory that does not exist yet",
        observed=str(directory),
        hint="Choose another directory; carry the generation in its name.",
    )
