"""Dense releases as recorded conversions: what was read is an adapter, what came of it a base (docs/adr/0007).

The released model has the identity that reading its directory as a base gives, so lineage runs from it to the adapter
and from there to the base. `release.json` says the same to people who have only the directory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Final

from registry.db import Change, Reader, blobs, evidence, files, lineage, manifests, names, records, tensors
from registry.formats import BaseReading, read_base
from registry.service import add
from registry.service.context import Context
from registry.service.handed import Conversion
from registry.service.release import DenseRelease, Released, dense_release
from registry.service.wishes import Subject, Wish
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.canonical import JsonObject
from schemas.conversion import CONVERSION_OPERATORS, ConversionManifest
from schemas.digests import Digest

MANIFEST: Final = "release.json"
HEADS: Final = "heads.safetensors"
EVIDENCE: Final = "content"
"""Every weight of a release was hashed: the changed ones when they were written, the others before."""


@dataclass(frozen=True)
class Handed:
    """The files of a release in a folder, and its record; a release that changes no number has none."""

    files: tuple[Path, ...]
    conversion: Digest | None


def recorded(reader: Reader, adapter: AdapterManifest) -> ConversionManifest | None:
    """A record of a dense release of an adapter by the operator of today."""
    for node in lineage.descendants(reader, adapter.digest).nodes:
        if node.depth == 1 and node.kind == ConversionManifest.KIND:
            conversion = manifests.load(reader, node.digest, ConversionManifest)
            if conversion.operator == CONVERSION_OPERATORS["dense"] and conversion.parent == adapter.digest:
                return conversion
    return None


def hand_out(context: Context, release: DenseRelease, folder: Path) -> Handed:
    """Write a release with `release.json` into an empty folder and record it."""
    made = release.write(folder)
    conversion = _conversion(Subject(Wish("dense"), release.adapter, None, release.base, release.base), made)
    document = json.dumps(_document(release, made, conversion), indent=2, sort_keys=True)
    (folder / MANIFEST).write_text(document + "\n", encoding="utf-8")
    written = [*release.files, MANIFEST]
    if release.heads:
        release.write_heads(folder / HEADS)
        written.append(HEADS)
    if conversion is not None and not _is_known(context, conversion):
        context.database.change("adapter.convert", context.principal, lambda change: _record(change, conversion, made))
    return Handed(tuple(folder / path for path in written), None if conversion is None else conversion.digest)


def convert(context: Context, subject: Subject) -> Conversion:
    """Release into the store: the model becomes a base whose files are held, under the wished name.

    Raises:
        RefusedError: `NO_DENSE_RELEASE` and what the arithmetic refuses.
        UnavailableError: `BASE_BYTES_UNAVAILABLE`.
    """
    known = _again(context, subject)
    if known is not None:
        return known
    release = dense_release(context, subject.parent, subject.old)
    with context.store.scratch.folder() as folder:
        made = release.write(folder)
        conversion = _conversion(subject, made)
        reading = None if conversion is None else read_base(folder)
        if reading is not None:
            for entry in reading.files:
                context.store.put_file(folder / entry.path, expect=entry.digests.digest)

    def work(change: Change) -> Conversion:
        created = conversion is not None and _record(change, conversion, made)
        if reading is not None:
            _hold(change, made.output.digest, reading)
        said = _said(subject, made.output.digest, conversion, made.measurement)
        return said.model_copy(update={"version": _named(change, subject, said.output), "created": created})

    return context.conclude("adapter.convert", work)


def _again(context: Context, subject: Subject) -> Conversion | None:
    """The same release, recorded before with its files still held: only the name is new, if it is."""
    with context.database.reading() as reader:
        known = recorded(reader, subject.parent)
        packed = () if known is None else files.packagings(reader, known.output)
        if known is None or not any(all(context.store.has(file.blob) for file in one.files) for one in packed):
            return None
        measured = records.measurements(reader, known.digest)
    said = _said(subject, known.output, known, measured[-1] if measured else None)
    if said.name is None:
        return said
    version = context.database.change(
        "conversion.name", context.principal, lambda change: _named(change, subject, known.output)
    )
    return said.model_copy(update={"version": version})


def _said(
    subject: Subject, output: Digest, conversion: ConversionManifest | None, measurement: JsonObject | None
) -> Conversion:
    return Conversion(
        parent=subject.parent.digest,
        rule=subject.wish.rule,
        output=output,
        conversion=None if conversion is None else conversion.digest,
        name=subject.wish.name,
        measurement=measurement,
    )


def _named(change: Change, subject: Subject, output: Digest) -> int | None:
    """A name of a release means the model, as the name of any base does."""
    name = subject.wish.name
    return None if name is None else names.assign(change, name, BaseManifest.KIND, output).version


def differs(
    context: Context, reader: Reader, conversion: ConversionManifest, subject: Subject, tolerance: float
) -> Iterator[str]:
    """What another run gives, where that is not the recorded model.

    Processors add a product's terms in different orders, so an element in a hundred million may round to its neighbour:
    where digests differ, the same weights must have changed by the same norms within the tolerance.
    """
    release = dense_release(context, subject.parent, subject.old)
    with tempfile.TemporaryDirectory(prefix="registry-verify-") as scratch:
        again = release.write(Path(scratch))
    if again.output.digest == conversion.output:
        return
    before = manifests.load(reader, conversion.output, BaseManifest)
    measured = records.measurements(reader, conversion.digest)
    if not measured or _changed(subject.old, before) != _changed(subject.old, again.output):
        yield again.output.digest
    elif not _near(measured[-1], again.measurement, tolerance):
        yield f"{again.output.digest}, other norms of change"


def _changed(old: BaseManifest, new: BaseManifest) -> frozenset[str]:
    assert not isinstance(old.weights, str), "the weights were read"
    assert not isinstance(new.weights, str), "a release has weights"
    return frozenset(name for name, ref in new.weights.items() if ref != old.weights[name])


def _near(recorded: JsonObject, again: JsonObject, tolerance: float) -> bool:
    one, other = recorded["total"], again["total"]
    assert isinstance(one, dict), "written by this module"
    assert isinstance(other, dict), "written by this module"
    return all(isclose(float(str(one[key])), float(str(other[key])), rel_tol=tolerance) for key in other)


def _conversion(subject: Subject, made: Released) -> ConversionManifest | None:
    """The record; null where every delta is less than rounding and the model is the base still."""
    return None if made.output == subject.old else subject.manifest(made.output.digest)


def _is_known(context: Context, conversion: ConversionManifest) -> bool:
    with context.database.reading() as reader:
        return manifests.known(reader, conversion.digest)


def _record(change: Change, conversion: ConversionManifest, made: Released) -> bool:
    manifests.put(change, made.output)
    evidence.put(change, made.output.digest, "evidence", EVIDENCE)
    created = manifests.put(change, conversion)
    if created:
        records.put_measurement(change, conversion.digest, made.measurement)
    return created


def _hold(change: Change, output: Digest, reading: BaseReading) -> None:
    """The files of a released model lie in the store."""
    new = blobs.put(change, [entry.digests for entry in reading.files])
    files.put(change, output, add.packed(reading))
    tensors.put(change, add.placed(reading), new)
    blobs.mark_present(change, [entry.digests.digest for entry in reading.files])


def _document(release: DenseRelease, made: Released, conversion: ConversionManifest | None) -> JsonObject:
    return {
        "kind": "dense_release",
        "operator": CONVERSION_OPERATORS["dense"],
        "conversion": None if conversion is None else conversion.digest,
        "base": release.base.digest,
        "adapter": release.adapter.digest,
        "output": made.output.digest,
        "base_weights_digest": release.base.weights_digest,
        "weights_digest": made.output.weights_digest,
        "weights": {name: ref.document() for name, ref in made.weights.items()},
        "heads": {name: ref.document() for name, ref in release.heads.items()},
        "measurement": made.measurement,
    }
