"""Converting an adapter: a recorded transformation, computed once (docs/concepts.md, "Conversion")."""

from __future__ import annotations

from registry.db import Change, Reader, blobs, files, lineage, manifests, names, records, tensors
from registry.errors import ConditionError
from registry.service import dense, resolve, rules
from registry.service.admit import OUTPUT_FILE
from registry.service.composer import Converted
from registry.service.context import Context
from registry.service.handed import Conversion
from registry.service.wishes import Subject, Wish, check_options, order_of, output_of, recipe_of, subject_of
from schemas.adapter import AdapterManifest
from schemas.conversion import ConversionManifest
from schemas.digests import BlobDigests, Digest


def convert(context: Context, ref: str, wish: Wish) -> Conversion:
    """Make another adapter, or a dense model, of the adapter a reference means and record how.

    The same conversion is computed once; one that changes nothing gives the adapter itself.

    Raises:
        RefusedError: the rule is not defined for this adapter.
        ConditionError: `BASE_REPLACED` is not acknowledged.
    """
    check_options(wish)
    if not wish.hands_out:
        context.require("compose", *([] if wish.name is None else [wish.name]))
    with context.database.reading() as reader:
        subject = subject_of(reader, ref, wish)
        known = None if wish.rule == "dense" else _known(context, reader, subject)
    if known is not None:
        return _say(context, wish.name, known, subject)
    with context.audited("adapter.convert", {"parent": subject.parent.digest, "rule": wish.rule}):
        if wish.rule == "dense":
            return dense.convert(context, subject)
        if wish.rule == "rebase":
            return _rebase(context, subject)
        return _compute(context, subject)


def _known(context: Context, reader: Reader, subject: Subject) -> ConversionManifest | None:
    """The same conversion, recorded before and with its bytes still here."""
    for node in lineage.descendants(reader, subject.parent.digest).nodes:
        if node.depth == 1 and node.kind == ConversionManifest.KIND:
            conversion = manifests.load(reader, node.digest, ConversionManifest)
            if conversion != subject.manifest(conversion.output):
                continue
            output = manifests.load(reader, conversion.output, AdapterManifest)
            if resolve.all_held(context, reader, resolve.tensors_of(output)):
                return conversion
    return None


def _rebase(context: Context, subject: Subject) -> Conversion:
    """No byte changes, so the output's files are those that hold its tensors now."""
    output = rules.rebase(subject.parent, subject.old, subject.new)
    if output == subject.parent:
        return _unchanged(context, subject)
    if "BASE_REPLACED" not in subject.wish.acknowledge:
        raise ConditionError(rules.rebase_condition(subject.old, subject.new))
    with context.database.reading() as reader:
        held = sorted(resolve.blobs_of(context, reader, resolve.tensors_of(output)))
    entries = [(f"{index}.safetensors", blob) for index, blob in enumerate(held)]

    def work(change: Change) -> Conversion:
        manifests.put(change, output)
        files.put(change, output.digest, entries)
        return _record(change, subject, output)

    return context.conclude("adapter.convert", work)


def _compute(context: Context, subject: Subject) -> Conversion:
    recipe = recipe_of(subject)
    with context.database.reading() as reader:
        order = order_of(context, reader, subject, recipe)
    with context.store.scratch.folder() as folder:
        converted = context.composer.convert(order, folder)
        output = output_of(recipe, converted)
        if output == subject.parent:
            return _unchanged(context, subject)
        blob = context.store.move_file(converted.file)

    def work(change: Change) -> Conversion:
        manifests.put(change, output)
        _put_file(change, output.digest, converted, blob)
        return _record(change, subject, output, converted)

    return context.conclude("adapter.convert", work)


def _put_file(change: Change, output: Digest, converted: Converted, blob: BlobDigests) -> None:
    blobs.put(change, [blob])
    blobs.mark_present(change, [blob.digest])
    files.put(change, output, [(OUTPUT_FILE, blob.digest)])
    tensors.put(
        change,
        [
            tensors.Location(item.tensor, blob.digest, item.offset, item.length, item.dtype, item.shape)
            for item in converted.tensors.values()
        ],
    )


def _record(
    change: Change, subject: Subject, output: AdapterManifest, converted: Converted | None = None
) -> Conversion:
    conversion = subject.manifest(output.digest)
    created = manifests.put(change, conversion)
    if created and converted is not None:
        records.put_measurement(change, conversion.digest, converted.measurement)
    return _named(change, subject, conversion, created=created)


def _say(context: Context, name: str | None, conversion: ConversionManifest, subject: Subject) -> Conversion:
    """What was converted before: only the name is new, if it is."""
    if name is None:
        with context.database.reading() as reader:
            return _told(reader, subject, conversion, None, created=False)

    def work(change: Change) -> Conversion:
        return _named(change, subject, conversion, created=False)

    return context.conclude("conversion.name", work)


def _unchanged(context: Context, subject: Subject) -> Conversion:
    """The adapter has this form already."""
    parent, name = subject.parent.digest, subject.wish.name

    def work(change: Change) -> int:
        assert name is not None, "there is something to write"
        return names.assign(change, name, AdapterManifest.KIND, parent).version

    version = None if name is None else context.database.change("conversion.name", context.principal, work)
    return Conversion(parent=parent, rule=subject.wish.rule, output=parent, name=name, version=version)


def _named(change: Change, subject: Subject, conversion: ConversionManifest, *, created: bool) -> Conversion:
    name = subject.wish.name
    version = None
    if name is not None:
        version = names.assign(change, name, ConversionManifest.KIND, conversion.digest).version
    return _told(change, subject, conversion, version, created=created)


def _told(
    reader: Reader, subject: Subject, conversion: ConversionManifest, version: int | None, *, created: bool
) -> Conversion:
    measured = records.measurements(reader, conversion.digest)
    return Conversion(
        parent=conversion.parent,
        rule=conversion.rule,
        output=conversion.output,
        conversion=conversion.digest,
        acknowledged=conversion.acknowledged,
        name=subject.wish.name,
        version=version,
        created=created,
        measurement=measured[-1] if measured else None,
    )
