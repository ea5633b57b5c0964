"""Tensors in several safetensors files, named by an index that must agree with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from registry.errors import RefusedError
from registry.formats.directory import Directory, plain_name_problems
from registry.formats.readings import FileReading
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from schemas.canonical import JsonObject
from schemas.errors import Problem

_REPAIR: Final = "Save it again; the index and its shards do not belong together."


@dataclass(frozen=True)
class Layout:
    """Which files hold the tensors, and by name which tensor the index expects where (null for a single file)."""

    shards: tuple[str, ...]
    weight_map: Mapping[str, str] | None
    files: tuple[FileReading, ...]


def indexed_layout(directory: Directory, index: str) -> Layout:
    """The files an index names, none of them opened.

    Raises:
        RefusedError: `INDEX_INVALID`, `PATH_OUTSIDE`, `FILE_MISSING`.
    """
    document, reading = directory.read_object(index)
    weight_map = _weight_map(document, index)
    shards = sorted(set(weight_map.values()))
    refuse_all(found for name in shards for found in plain_name_problems(name, (index, "weight_map")))
    missing = [name for name in shards if name not in directory.names or not name.endswith(".safetensors")]
    refuse_all(
        problem("FILE_MISSING", (index, "weight_map"), "a safetensors file in the directory", shown(name), _REPAIR)
        for name in missing
    )
    return Layout(tuple(shards), weight_map, (reading,))


def agreement_problems(layout: Layout, shards: Mapping[str, Iterable[TensorEntry]]) -> list[Problem]:
    """`INDEX_MISMATCH`: each tensor lies in exactly the shard the index names, and nothing else lies there."""
    if layout.weight_map is None:
        return []
    index = layout.files[0].path
    stored = {(entry.name, name) for name, entries in shards.items() for entry in entries}
    mapped = set(layout.weight_map.items())
    return [
        problem("INDEX_MISMATCH", (index, "weight_map", name), expected, f"{side} {shown(file)}", _REPAIR)
        for pairs, expected, side in (
            (mapped - stored, "the tensor in the shard the index names", "not in"),
            (stored - mapped, "an index entry for each stored tensor", "no entry for"),
        )
        for name, file in sorted(pairs)
    ]


def _weight_map(document: JsonObject, index: str) -> dict[str, str]:
    weight_map = document.get("weight_map")
    names = weight_map if isinstance(weight_map, dict) else {}
    found = {name: file for name, file in names.items() if isinstance(file, str)}
    if not found or len(found) != len(names):
        observed = shown(weight_map)
        raise RefusedError(problem("INDEX_INVALID", (index, "weight_map"), "tensor to file", observed, _REPAIR))
    return found
