"""Converting an adapter: a recorded transformation, computed once (docs/concepts.md, "Conversion")."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from registry.db import Change, Reader, blobs, files, lineage, manifests, names, records, tensors
from registry.errors import ConditionError, Problem, UsageProblemError
from registry.service import resolve, rules
from registry.service.admit import OUTPUT_FILE
from registry.service.composer import Converted, ConvertOrder
from registry.service.context import Context
from registry.service.handed import Conversion
from registry.service.plain import plain_lora
from registry.service.recipes import Recipe
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest, TensorRef
from schemas.conversion import CONVERSION_OPERATORS, ConversionManifest, Rule, Store
from schemas.digests import BlobDigests, Digest
from schemas.names import check_name

OPTIONS: Final[Mapping[Rule, str]] = {"portable": "initial", "rebase": "base", "cast": "store"}
"""The one option that each of these rules needs and no other rule has."""


@dataclass(frozen=True)
class Wish:
    """What to make of an adapter.

    Attributes:
        rule: the transformation.
        name: to register the result under; null records it without one.
        initial: reference of the snapshot from before the training (portable).
        base: reference of the other base (rebase).
        store: dtype to round to (cast).
        acknowledge: conditions accepted by code.
    """

    rule: Rule
    name: str | None = None
    initial: str | None = None
    base: str | None = None
    store: Store | None = None
    acknowledge: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class _Subject:
    """A wish resolved: what is converted, from which start, between which bases."""

    wish: Wish
    parent: AdapterManifest
    initial: AdapterManifest | None
    old: BaseManifest
    new: BaseManifest

    @property
    def acknowledged(self) -> tuple[str, ...]:
        return ("BASE_REPLACED",) if self.wish.rule == "rebase" else ()

    def manifest(self, output: Digest) -> ConversionManifest:
        """The record of it."""
        return ConversionManifest(
            parent=self.parent.digest,
            initial=None if self.initial is None else self.initial.digest,
            base=self.new.digest,
            rule=self.wish.rule,
            operator=CONVERSION_OPERATORS[self.wish.rule],
            store=self.wish.store,
            acknowledged=self.acknowledged,
            output=output,
        )


def convert(context: Context, ref: str, wish: Wish) -> Conversion:
    """Make another adapter of the one a reference means and record how.

    The same conversion is computed once; one that changes nothing gives the adapter itself.

    Raises:
        RefusedError: the rule is not defined for this adapter.
        ConditionError: `BASE_REPLACED` is not acknowledged.
    """
    _check_options(wish)
    with context.database.reading() as reader:
        subject = _subject(reader, ref, wish)
        known = _known(context, reader, subject)
    if known is not None:
        return _say(context, wish.name, known, subject)
    with context.audited("adapter.convert", {"parent": subject.parent.digest, "rule": wish.rule}):
        if wish.rule == "rebase":
            return _rebase(context, subject)
        return _compute(context, subject, _recipe(subject))


def _check_options(wish: Wish) -> None:
    if wish.name is not None:
        check_name(wish.name)
    needed = OPTIONS.get(wish.rule)
    for option in sorted(set(OPTIONS.values())):
        given = getattr(wish, option) is not None
        if given != (option == needed):
            expected = f"{option} given" if option == needed else f"no {option}"
            hint = "portable takes the initial snapshot, rebase a base, a cast a dtype; other rules take none of them."
            raise UsageProblemError(
                Problem(
                    code="CONVERSION_OPTION",
                    path=(option,),
                    expected=f"{expected} for {wish.rule}",
                    observed="given" if given else "none",
                    hint=hint,
                )
            )


def _subject(reader: Reader, ref: str, wish: Wish) -> _Subject:
    digests = [resolve.digest_of(reader, item) for item in (ref, wish.initial) if item is not None]
    resolve.refuse_yanked(reader, digests)
    parent, *rest = (resolve.adapter_of(reader, digest) for digest in digests)
    old = manifests.load(reader, parent.base, BaseManifest)
    new = old if wish.base is None else resolve.base_of(reader, wish.base)
    return _Subject(wish, parent, rest[0] if rest else None, old, new)


def _recipe(subject: _Subject) -> Recipe:
    parent, wish = subject.parent, subject.wish
    if wish.rule == "portable":
        assert subject.initial is not None, "the option was checked"
        return rules.portable(parent, subject.initial)
    if wish.rule == "compact":
        return rules.compact(parent)
    if wish.rule == "cast":
        assert wish.store is not None, "the option was checked"
        return rules.cast(parent, wish.store)
    if wish.rule == "balanced":
        return rules.balanced(parent)
    return plain_lora(parent, subject.old)


def _known(context: Context, reader: Reader, subject: _Subject) -> ConversionManifest | None:
    """The same conversion, recorded before and with its bytes still here."""
    for node in lineage.descendants(reader, subject.parent.digest).nodes:
        if node.depth == 1 and node.kind == ConversionManifest.KIND:
            conversion = manifests.load(reader, node.digest, ConversionManifest)
            same = conversion == subject.manifest(conversion.output)
            output = manifests.load(reader, conversion.output, AdapterManifest)
            if same and resolve.all_held(context, reader, resolve.tensors_of(output)):
                return conversion
    return None


def _rebase(context: Context, subject: _Subject) -> Conversion:
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

    return context.database.change("adapter.convert", context.principal, work)


def _compute(context: Context, subject: _Subject, recipe: Recipe) -> Conversion:
    wanted = [ref for adapter in (subject.parent, subject.initial) if adapter for ref in resolve.tensors_of(adapter)]
    with context.database.reading() as reader:
        extents = resolve.extents(context, reader, (ref for ref in wanted if 0 not in ref.shape))
    order = ConvertOrder(tuple(making.order for making in recipe.makings), recipe.carried, extents)
    with tempfile.TemporaryDirectory(prefix="registry-convert-") as folder:
        converted = context.composer.convert(order, Path(folder))
        output = recipe.output({key: _ref(converted, key) for key in converted.tensors})
        if output == subject.parent:
            return _unchanged(context, subject)
        blob = context.store.put_file(converted.file)

    def work(change: Change) -> Conversion:
        manifests.put(change, output)
        _put_file(change, output.digest, converted, blob)
        return _record(change, subject, output, converted)

    return context.database.change("adapter.convert", context.principal, work)


def _ref(converted: Converted, key: tuple[str, str]) -> TensorRef:
    place = converted.tensors[key]
    return TensorRef(tensor=place.tensor, dtype=place.dtype, shape=place.shape)


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
    change: Change, subject: _Subject, output: AdapterManifest, converted: Converted | None = None
) -> Conversion:
    conversion = subject.manifest(output.digest)
    created = manifests.put(change, conversion)
    if created and converted is not None:
        records.put_measurement(change, conversion.digest, converted.measurement)
    return _named(change, subject, conversion, created=created)


def _say(context: Context, name: str | None, conversion: ConversionManifest, subject: _Subject) -> Conversion:
    """What was converted before: only the name is new, if it is."""
    if name is None:
        with context.database.reading() as reader:
            return _told(reader, subject, conversion, None, created=False)

    def work(change: Change) -> Conversion:
        return _named(change, subject, conversion, created=False)

    return context.database.change("conversion.name", context.principal, work)


def _unchanged(context: Context, subject: _Subject) -> Conversion:
    """The adapter has this form already."""
    parent, name = subject.parent.digest, subject.wish.name

    def work(change: Change) -> int:
        assert name is not None, "there is something to write"
        return names.assign(change, name, AdapterManifest.KIND, parent).version

    version = None if name is None else context.database.change("conversion.name", context.principal, work)
    return Conversion(parent=parent, rule=subject.wish.rule, output=parent, name=name, version=version)


def _named(change: Change, subject: _Subject, conversion: ConversionManifest, *, created: bool) -> Conversion:
    name = subject.wish.name
    version = None
    if name is not None:
        version = names.assign(change, name, ConversionManifest.KIND, conversion.digest).version
    return _told(change, subject, conversion, version, created=created)


def _told(
    reader: Reader, subject: _Subject, conversion: ConversionManifest, version: int | None, *, created: bool
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
