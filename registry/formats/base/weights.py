"""The weights of a base: one safetensors file, or shards named by an index that must agree with them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from registry.errors import RefusedError
from registry.formats.base.stored import Stored
from registry.formats.directory import PICKLE_SUFFIXES, Directory, pickle_problem
from registry.formats.readings import FileReading, Progress, TensorLocation
from registry.formats.report import problem, refuse_all
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import ScannedFile, file_header, scan_file
from registry.formats.shards import Layout, agreement_problems, indexed_layout
from schemas.base import WeightRef
from schemas.digests import Digest

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"


@dataclass(frozen=True)
class Weights:
    """All stored tensors by name, with what reading them gave."""

    refs: Mapping[str, WeightRef]
    files: tuple[FileReading, ...]
    locations: Mapping[str, TensorLocation]
    stored: Stored


def find_layout(directory: Directory) -> Layout:
    """Find the weight files without opening them.

    Raises:
        RefusedError: `WEIGHTS_MISSING`, `PICKLE_REFUSED`, `LAYOUT_AMBIGUOUS`, `PATH_OUTSIDE`, `INDEX_INVALID`,
            `FILE_MISSING`.
    """
    single, index = SINGLE in directory.names, INDEX in directory.names
    if single and index:
        hint = "Keep the one that holds the weights you mean."
        raise RefusedError(problem("LAYOUT_AMBIGUOUS", (INDEX,), f"{SINGLE} or an index", "both", hint))
    if single:
        return Layout((SINGLE,), None, ())
    if index:
        return indexed_layout(directory, INDEX)
    pickles = sorted(name for name in directory.names if name.endswith(PICKLE_SUFFIXES))
    refuse_all(pickle_problem(name) for name in pickles)
    hint = "Point at the directory that save_pretrained wrote, with safetensors weights."
    raise RefusedError(problem("WEIGHTS_MISSING", (SINGLE,), f"{SINGLE} or {INDEX}", "neither", hint))


def read_headers(directory: Directory, layout: Layout) -> Weights:
    """Dtypes and shapes from the headers; no tensor is read and no weight file hashed."""
    headers = {name: file_header(directory, name).tensors for name in layout.shards}
    refuse_all(agreement_problems(layout, headers))
    entries = [entry for tensors in headers.values() for entry in tensors]
    refs = {entry.name: WeightRef(tensor="not_verified", dtype=entry.dtype, shape=entry.shape) for entry in entries}
    return Weights(refs, layout.files, {}, _stored(directory, headers, {}))


def read_content(directory: Directory, layout: Layout, progress: Progress | None, jobs: int) -> Weights:
    """Every tensor and every file hashed in one pass; up to `jobs` files at a time."""
    read_headers(directory, layout)
    with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
        scanned = list(pool.map(partial(_scan, directory, progress), layout.shards))
    refuse_all(agreement_problems(layout, {file.file.path: [item.entry for item in file.tensors] for file in scanned}))
    refs, locations = {}, {}
    for file in scanned:
        for tensor in file.tensors:
            entry = tensor.entry
            refs[entry.name] = WeightRef(tensor=tensor.digest, dtype=entry.dtype, shape=entry.shape)
            locations[entry.name] = tensor.location(file.file)
    shards = {file.file.path: tuple(tensor.entry for tensor in file.tensors) for file in scanned}
    stored = _stored(directory, shards, {name: place.tensor for name, place in locations.items()})
    return Weights(refs, (*layout.files, *(file.file for file in scanned)), locations, stored)


def _stored(
    directory: Directory, shards: Mapping[str, tuple[TensorEntry, ...]], digests: Mapping[str, Digest]
) -> Stored:
    entries = {entry.name: entry for tensors in shards.values() for entry in tensors}
    files = {entry.name: file for file, tensors in shards.items() for entry in tensors}
    return Stored(directory, entries, files, digests)


def _scan(directory: Directory, progress: Progress | None, name: str) -> ScannedFile:
    return scan_file(directory, name, progress=progress)
