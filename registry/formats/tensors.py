"""One safetensors file by itself, such as a router's: bounded, hashed whole, every value finite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from registry.formats.directory import Directory
from registry.formats.factors import value_problems
from registry.formats.report import problem, refuse_all
from registry.formats.scan import ScannedFile, ScannedTensor, scan_file

LARGEST_FILE: Final = 8 * 2**30
"""Bytes; a router, or an adapter file that holds one, is far below."""


def read_tensors(path: Path, largest: int = LARGEST_FILE) -> ScannedFile:
    """Hash a file and all its tensors.

    Raises:
        RefusedError: no regular safetensors file of at most `largest` bytes, or `NON_FINITE` for a value in it.
    """
    directory = Directory(path.parent, frozenset({path.name} if path.is_file() else ()))
    with directory.open(path.name) as stream:
        size = os.fstat(stream.fileno()).st_size
    if size > largest:
        hint = "A router is small; name the file that holds its tensors."
        refuse_all([problem("FILE_TOO_LARGE", (path.name,), f"at most {largest} bytes", str(size), hint)])
    scanned = scan_file(directory, path.name, values=True)
    refuse_all(found for tensor in scanned.tensors for found in value_problems(tensor))
    return scanned


def by_name(scanned: ScannedFile) -> dict[str, ScannedTensor]:
    """The tensors of a file by name."""
    return {tensor.entry.name: tensor for tensor in scanned.tensors}
