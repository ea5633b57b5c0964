"""A directory made of blobs that the store holds: what was uploaded before is read as if it had been given here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from registry.db import Reader, blobs
from registry.errors import ConflictError, DigestMismatchError, Problem
from registry.formats.directory import plain_name_problems
from registry.service.context import Context
from registry.storage import hash_file
from schemas.digests import PREFIX, Digest
from schemas.errors import refuse


@contextmanager
def directory_of(context: Context, files: Mapping[str, str]) -> Iterator[Path]:
    """A private directory with these files, each a blob under its BLAKE3 or SHA-256; gone when the block ends.

    Files are linked where the store's file system allows it, so that a base of many gigabytes is not copied.

    Raises:
        RefusedError: `PATH_OUTSIDE`, a name that is not one plain file name.
        ConflictError: `BLOBS_MISSING`, one problem for each file whose bytes are not here.
        DigestMismatchError: `BLOB_DIGEST_MISMATCH`, bytes that do not have the SHA-256 they were recorded with.
    """
    refuse(problem for name in files for problem in plain_name_problems(name, ("files", name)))
    held = _held(context, files)
    with context.store.scratch.folder() as folder:
        for name, digest in held.items():
            place(context.store.local_path(digest), folder / name)
            _check_sha256(folder / name, files[name])
        yield folder


def place(source: Path, target: Path) -> None:
    """Put a file that is only read somewhere else: linked, or copied to another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _held(context: Context, files: Mapping[str, str]) -> dict[str, Digest]:
    with context.database.reading() as reader:
        found = {name: _blob(reader, digest) for name, digest in files.items()}
    held = {name: digest for name, digest in found.items() if digest is not None and context.store.has(digest)}
    missing = [_missing(name, digest) for name, digest in files.items() if name not in held]
    if missing:
        raise ConflictError(*missing)
    return held


def _blob(reader: Reader, digest: str) -> Digest | None:
    if digest.startswith(PREFIX):
        return digest
    row = blobs.by_sha256(reader, digest)
    return None if row is None else row.digest


def _check_sha256(path: Path, wanted: str) -> None:
    """A recorded SHA-256 is the word of whoever recorded it until the bytes were hashed."""
    if wanted.startswith(PREFIX):
        return
    observed = hash_file(path).sha256
    if observed != wanted:
        raise DigestMismatchError(
            Problem(
                code="BLOB_DIGEST_MISMATCH",
                path=("files", path.name),
                expected=wanted,
                observed=observed,
                hint="Name the file by its BLAKE3, or upload it again.",
            )
        )


def _missing(name: str, digest: str) -> Problem:
    return Problem(
        code="BLOBS_MISSING",
        path=("files", name),
        expected=f"blob {digest} in the store",
        observed="none",
        hint="Upload it (PUT /v1/blobs or POST /v1/uploads), then ask again.",
    )
