"""Tell everything about an adapter or base directory without registering it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from registry.db import manifests
from registry.errors import Problem, RefusedError
from registry.formats import BaseReading, read_base
from registry.formats.look import Look, look_at
from registry.formats.snapshot import ReadWeight
from registry.formats.weights import WeightFiles, WeightPlace
from registry.service import resolve
from registry.service.base_bytes import weight_reader
from registry.service.context import Context
from registry.service.describe import adapter_facts, base_facts, groups_of, lanes_of, parts_of
from registry.service.explain import explain
from registry.service.inspected import Fault, Inspected, Remark
from schemas.base import BaseManifest

_FIGURES: Final = {"BASE_REPEATED": "base_correlation"}


def inspect_directory(directory: Path, base: Path | None = None) -> Inspected:
    """What a directory is, held against a base directory where one is given; no registry is needed.

    Raises:
        UsageProblemError: `DIRECTORY_MISSING`.
        RefusedError: the base directory is none.
    """
    if base is None:
        return _inspected(directory, None, None)
    reading = read_base(base)
    return _inspected(directory, reading.manifest, WeightFiles(_weights_in(base, reading)))


def inspect(context: Context, directory: Path, base_ref: str | None = None) -> Inspected:
    """The same against a registered base."""
    if base_ref is None:
        return inspect_directory(directory)
    with context.database.reading() as reader:
        base = manifests.load(reader, resolve.digest_of(reader, base_ref), BaseManifest)
    return _inspected(directory, base, weight_reader(context, base))


def inspect_against(directory: Path, base: BaseManifest, weight: ReadWeight) -> Inspected:
    """The same against a base that lies elsewhere; `weight` reads what lies there."""
    return _inspected(directory, base, weight)


def _weights_in(directory: Path, reading: BaseReading) -> dict[str, WeightPlace]:
    """Where the weights of a base directory lie; those of a packed base are no numbers to compare with."""
    manifest = reading.manifest
    if manifest.quantizer != "none" or isinstance(manifest.weights, str):
        return {}
    places = {place.tensor: place for place in reading.locations}
    paths = {file.digests.digest: directory / file.path for file in reading.files}
    return {
        name: WeightPlace(paths[place.file], place.offset, place.length, place.dtype, place.shape)
        for name, ref in manifest.weights.items()
        for place in [places.get(ref.tensor)]
        if place is not None
    }


def _inspected(directory: Path, base: BaseManifest | None, weight: ReadWeight | None) -> Inspected:
    if _is_base(directory):
        return _base(directory)
    look = look_at(directory, base, weight)
    if look.draft is None:
        return Inspected(kind="unknown", directory=str(directory), facts={}, problems=_faults(look.problems))
    return Inspected(
        kind="adapter",
        directory=str(directory),
        facts=adapter_facts(look, base),
        groups=groups_of(look),
        parts=parts_of(look),
        surprises=_surprises(look),
        problems=_faults(look.problems),
        lanes=() if look.problems else lanes_of(look),
    )


def _is_base(directory: Path) -> bool:
    """A model's config and no adapter's: adapters of some producers carry both."""
    named = {path.name for path in directory.iterdir()} if directory.is_dir() else set[str]()
    return "config.json" in named and not any(name.startswith("adapter") for name in named)


def _base(directory: Path) -> Inspected:
    """Headers and configuration are enough to tell what a base is."""
    try:
        reading = read_base(directory, evidence="structural")
    except RefusedError as error:
        return Inspected(kind="base", directory=str(directory), facts={}, problems=_faults(error.problems))
    return Inspected(kind="base", directory=str(directory), facts=base_facts(reading))


def _surprises(look: Look) -> tuple[Remark, ...]:
    codes = (*(look.draft.conditions if look.draft else ()), *look.remarks.conditions)
    return tuple(Remark(code=code, means=_meaning(code), figure=_figure(look, code)) for code in codes)


def _meaning(code: str) -> str:
    return str(explain(code)["meaning"])


def _figure(look: Look, code: str) -> float | None:
    value = look.remarks.notes.get(_FIGURES.get(code, ""))
    return value if isinstance(value, float) else None


def _faults(problems: tuple[Problem, ...]) -> tuple[Fault, ...]:
    return tuple(
        Fault(code=item.code, where=item.pointer, expected=item.expected, observed=item.observed, repair=item.hint)
        for item in problems
    )
