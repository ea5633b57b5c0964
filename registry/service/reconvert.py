"""Converting again and comparing, for `verify --recompute`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from registry.db import Reader, manifests
from registry.service import dense, resolve, rules
from registry.service.composer import Extent, Stored
from registry.service.context import Context
from registry.service.wishes import Subject, order_of, output_of, recipe_of, subject_again
from schemas.adapter import AdapterManifest
from schemas.conversion import ConversionManifest


def differs(context: Context, reader: Reader, conversion: ConversionManifest, tolerance: float) -> Iterator[str]:
    """What another run gives, where that is not the recorded output.

    Copies, scales and roundings have the same bytes anywhere; `balanced` uses singular vectors, which builds round
    differently, so its deltas are compared.
    """
    subject = subject_again(reader, conversion)
    if conversion.rule == "rebase":
        again = rules.rebase(subject.parent, subject.old, subject.new).digest
        if again != conversion.output:
            yield again
        return
    if conversion.rule == "dense":
        yield from dense.differs(context, reader, conversion, subject, tolerance)
        return
    with tempfile.TemporaryDirectory(prefix="registry-verify-") as folder:
        yield from _computed(context, reader, conversion, subject, Path(folder), tolerance)


def _computed(
    context: Context,
    reader: Reader,
    conversion: ConversionManifest,
    subject: Subject,
    folder: Path,
    tolerance: float,
) -> Iterator[str]:
    recipe = recipe_of(subject)
    converted = context.composer.convert(order_of(context, reader, subject, recipe), folder)
    again = output_of(recipe, converted)
    if again.digest == conversion.output:
        return
    recorded = manifests.load(reader, conversion.output, AdapterManifest)
    held = Stored(recorded, resolve.extents(context, reader, resolve.tensors_of(recorded)))
    places = converted.tensors.values()
    made = {place.tensor: Extent(converted.file, place.offset, place.length) for place in places}
    far = context.composer.difference(held, Stored(again, made))
    if conversion.rule != "balanced" or far > tolerance:
        yield f"{again.digest}, deltas {far:.3g} apart"
