"""Directories that appear whole or not at all: written under another name, flushed, then renamed."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from registry.errors import Problem, UnavailableError

PARTIAL: Final = ".partial"
ARRIVING: Final = ".arriving"


def arriving(folder: Path, name: str) -> Path:
    """Where bytes of a directory `name` are kept until all of them are there, so that they need not come twice."""
    return folder / f".{name}{ARRIVING}"


@contextmanager
def written_beside(target: Path) -> Iterator[Path]:
    """A new folder beside `target` that takes its name when the block ends well, and is removed when it does not.

    Raises:
        UnavailableError: `TARGET_UNWRITABLE`.
    """
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        partial.mkdir(parents=True)
        yield partial
        flush(partial)
        partial.rename(target)
        _flush_folder(target.parent)
    except OSError as error:
        raise UnavailableError(unwritable(target, error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def point(link: Path, name: str) -> None:
    """Make `link` a relative symbolic link to `name` beside it, in one step; a reader finds the old one or the new."""
    beside = link.with_name(f".{link.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        beside.symlink_to(name, target_is_directory=True)
        beside.replace(link)
        _flush_folder(link.parent)
    except OSError as error:
        raise UnavailableError(unwritable(link, error)) from error
    finally:
        beside.unlink(missing_ok=True)


def flush(folder: Path) -> None:
    """Bring every file of a tree to the disk, folders last."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            flush(path)
        else:
            _flush_folder(path)
    _flush_folder(folder)


def unwritable(path: Path, error: OSError) -> Problem:
    """`TARGET_UNWRITABLE`."""
    return Problem(
        code="TARGET_UNWRITABLE",
        expected="a place that can be written",
        observed=f"{path}: {error.strerror or error}",
        hint="Give the folder room and permission, or choose another.",
    )


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
