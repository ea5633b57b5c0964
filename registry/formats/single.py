"""Directories whose adapter is their one safetensors file, whatever its name."""

from __future__ import annotations

from registry.errors import RefusedError
from registry.formats.directory import Directory
from registry.formats.report import problem, shown
from registry.formats.safetensors_file import Header
from registry.formats.scan import file_header


def tensor_files(directory: Directory) -> tuple[str, ...]:
    """The safetensors files of a directory, by name."""
    return tuple(sorted(name for name in directory.names if name.endswith(".safetensors")))


def single_tensor_file(directory: Directory) -> str:
    """The one safetensors file.

    Raises:
        RefusedError: `WEIGHTS_MISSING`, or `LAYOUT_AMBIGUOUS` for several.
    """
    names = tensor_files(directory)
    if len(names) == 1:
        return names[0]
    if not names:
        hint = "Save the tensors as safetensors into the directory."
        raise RefusedError(problem("WEIGHTS_MISSING", (), "one safetensors file", "none", hint))
    hint = "Give each adapter, and each snapshot of its training, a directory of its own."
    raise RefusedError(problem("LAYOUT_AMBIGUOUS", (names[0],), "one safetensors file", shown(", ".join(names)), hint))


def readable_header(directory: Directory, name: str) -> Header | None:
    """The header of a file, null where it has no valid one: recognising a producer refuses nothing."""
    try:
        return file_header(directory, name)
    except RefusedError:
        return None
