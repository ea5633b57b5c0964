"""Dense releases: the base's own files with every delta added, ready to load without an adapter.

Every file of the base is copied, and the changed weights are overwritten where they lie in the copy, so shards, index
and tokenizer keep their layout. Heads the base has no place for stay beside them. A rollback serves the base or another
release; nothing is ever subtracted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Final, cast

from registry.db import files, tensors
from registry.errors import Problem, UnavailableError
from registry.formats.base.modules import Layer, layers
from registry.formats.safetensors_file import TensorEntry, read_header
from registry.formats.safetensors_write import write_safetensors
from registry.service import resolve
from registry.service.base_bytes import file_of
from registry.service.composer import Extent, ReleasedWeight, ReleaseOrder, WeightOrder
from registry.service.context import Context
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement
from schemas.base import BaseManifest, TensorRef, WeightRef, weights_digest
from schemas.canonical import JsonObject
from schemas.catalogue.methods import family
from schemas.digests import Digest
from schemas.errors import refuse
from schemas.model import validate

FORMS: Final = frozenset({"additive", "triplets", "normalized"})
"""Forms whose update is a matrix to add, or DoRA's rows; others need an input, a gate or another base."""
ROLES: Final = frozenset({"E", "magnitude"})
DTYPES: Final = frozenset({"F64", "F32", "F16", "BF16"})
DIGITS: Final = 9


@dataclass(frozen=True)
class Released:
    """What a release came to: the model as a base of its own, its changed weights, and the norms of the change and of
    what rounding took from it, per weight and in total."""

    output: BaseManifest
    weights: Mapping[str, TensorRef]
    measurement: JsonObject


@dataclass(frozen=True)
class DenseRelease:
    """A release that may be written: where each file of the base is, and which weights change in which of them."""

    context: Context
    adapter: AdapterManifest
    base: BaseManifest
    files: Mapping[str, Path]
    weights: tuple[tuple[str, WeightOrder], ...]
    heads: Mapping[str, TensorRef]
    extents: Mapping[Digest, Extent]

    def write(self, folder: Path) -> Released:
        """Copy the base's files into an empty folder and add the deltas where the weights lie in them; file by file,
        so that a release that was cut off goes on with the files that are missing."""
        told = []
        for done, path in enumerate(self.files):
            self.context.task.progress(done, len(self.files), "files")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            told.append(self.context.task.file(folder / path, partial(self._file, folder, path)))
        self.context.task.progress(len(self.files), len(self.files), "files")
        released = tuple(weight for said in told for weight in _weights(said))
        figures: JsonObject = {item.name: _figures([item]) for item in released}
        return Released(
            output=_with_weights(self.base, released),
            weights={item.name: item.tensor for item in released},
            measurement={"weights": figures, "total": _figures(list(released))},
        )

    def _file(self, folder: Path, path: str) -> JsonObject:
        shutil.copyfile(self.files[path], folder / path)
        orders = [order for at, order in self.weights if at == path]
        here = tuple(replace(order, place=replace(order.place, path=folder / path)) for order in orders)
        released = self.context.composer.release(ReleaseOrder(here, self.extents)) if here else ()
        return {"weights": [_said(weight) for weight in released]}

    def write_heads(self, path: Path) -> None:
        """Write the heads that the base has no place for, byte for byte."""
        write_safetensors(path, self.heads, self._read)

    def _read(self, ref: TensorRef) -> bytes:
        extent = self.extents[ref.tensor]
        with extent.path.open("rb") as stream:
            stream.seek(extent.offset)
            return stream.read(extent.length)


def _said(weight: ReleasedWeight) -> JsonObject:
    figures = {"change": weight.change, "rounding": weight.rounding}
    return {"name": weight.name, "tensor": weight.tensor.document(), **figures}


def _weights(said: JsonObject) -> Iterator[ReleasedWeight]:
    """The weights of one file, read back from what was said of it."""
    for item in cast(list[JsonObject], said["weights"]):
        figures = (cast(float, item["change"]), cast(float, item["rounding"]))
        yield ReleasedWeight(str(item["name"]), validate(TensorRef, item["tensor"]), *figures)


def _with_weights(base: BaseManifest, released: tuple[ReleasedWeight, ...]) -> BaseManifest:
    """The base with other numbers in some of its weights: what reading the release as a base gives."""
    assert not isinstance(base.weights, str), "the weights were read"
    changed = {
        item.name: WeightRef(tensor=item.tensor.tensor, dtype=item.tensor.dtype, shape=item.tensor.shape)
        for item in released
    }
    weights = {**base.weights, **changed}
    return base.model_copy(update={"weights": weights, "weights_digest": weights_digest(weights)})


def dense_release(context: Context, adapter: AdapterManifest, base: BaseManifest) -> DenseRelease:
    """Check that an adapter is a change of the base's weights and find every byte.

    Raises:
        RefusedError: `NO_DENSE_RELEASE`, one problem for each thing that no weight can express.
        UnavailableError: `BASE_BYTES_UNAVAILABLE`.
    """
    refuse([*_adapter_problems(adapter), *_base_problems(base)])
    origins = _base_files(context, base)
    entries = {entry.name: entry for path, origin in origins.items() for entry in _entries(path, origin)}
    orders = _orders(adapter, base, entries)
    heads = {head.name: head.value for head in adapter.full_replacements if head.name not in entries}
    with context.database.reading() as reader:
        wanted = (ref for ref in resolve.tensors_of(adapter) if 0 not in ref.shape)
        extents = resolve.extents(context, reader, wanted)
    return DenseRelease(context, adapter, base, origins, orders, heads, extents)


def _adapter_problems(adapter: AdapterManifest) -> Iterator[Problem]:
    contract = family(adapter.family)
    if contract is None or contract.form not in FORMS:
        yield _no(("family",), "an update that is a matrix", adapter.family, "Serve it as an adapter.")
    if adapter.payload != "portable" or adapter.initializer != "none":
        observed = f"{adapter.payload} factors, initializer {adapter.initializer}"
        yield _no(("payload",), "factors of the original base", observed, "Convert it to portable first.")
    for factor in adapter.factors:
        yield from _factor_problems(factor)


def _factor_problems(factor: FactorManifest) -> Iterator[Problem]:
    path = ("factors", factor.module)
    if factor.site[1:] != (-1, -1, ""):
        yield _no(path, "one factor a module", "an expert or a route", "Serve routed experts with their router.")
    for role in sorted(factor.extra.keys() - ROLES):
        yield _no((*path, "extra", role), "E or magnitude beside a and b", role, "Serve it as an adapter.")
    if "magnitude" in factor.extra and (factor.order != "B@A" or len(factor.a.shape) != 2):
        hint = "Merge it with the program that trained it."
        yield _no((*path, "order"), "DoRA on a Linear layer", f"{factor.order}, {len(factor.a.shape)} dimensions", hint)


def _base_problems(base: BaseManifest) -> Iterator[Problem]:
    if base.quantizer != "none":
        hint = "Release on the unquantized base, then quantize once, after the sum."
        yield _no(("base", "quantizer"), "plain numbers", "a quantized base, which is never edited in place", hint)
    if base.weights_digest == "not_verified":
        hint = "Register the base with evidence `content`."
        yield _no(("base", "weights"), "weights whose bytes were hashed", "not_verified", hint)


def _base_files(context: Context, base: BaseManifest) -> dict[str, Path]:
    """Every file of one packaging of the base."""
    with context.database.reading() as reader:
        packagings = files.packagings(reader, base.digest)
        rows = {row.blob: row for row in reversed(tensors.base_files(reader, base.digest))}
    for packaging in packagings:
        found = {entry.path: file_of(context, entry.blob, rows.get(entry.blob)) for entry in packaging.files}
        here = {path: origin for path, origin in found.items() if origin is not None}
        if len(here) == len(found):
            return here
    raise UnavailableError(
        Problem(
            code="BASE_BYTES_UNAVAILABLE",
            path=(base.digest,),
            expected="every file of the base, unchanged",
            observed="one of them is gone or changed",
            hint="Bring the directory back, or add the base from where it is now.",
        )
    )


def _entries(path: str, origin: Path) -> tuple[TensorEntry, ...]:
    if not path.endswith(".safetensors"):
        return ()
    with origin.open("rb") as stream:
        return read_header(stream, origin.stat().st_size, path).tensors


def _orders(
    adapter: AdapterManifest, base: BaseManifest, entries: Mapping[str, TensorEntry]
) -> tuple[tuple[str, WeightOrder], ...]:
    """Which weights change, each with its file; a module's weight by its own name."""
    known, changes = layers(base), dict[str, list[FactorManifest]]()
    shared = {name for module, layer in known.items() if _own(module, layer) is None for name in layer.weights}
    problems = []
    for factor in adapter.factors:
        name = _own(factor.module, known.get(factor.module))
        if name is None or name not in entries or name in shared:
            hint = "Serve it as an adapter: a tied or separately stored weight cannot take this change alone."
            problems.append(_no(("factors", factor.module), "one weight of its own in the base", "none", hint))
        elif factor.rank:
            changes.setdefault(name, []).append(factor)
    whole = {head.name: head.value for head in adapter.full_replacements if head.name in entries}
    for head in adapter.full_replacements:
        problems += _head_problems(head, entries, known, shared | changes.keys())
    refuse(problems)
    orders = []
    for name in sorted({*changes, *whole}):
        entry = entries[name]
        place = Extent(Path(entry.file), entry.offset, entry.length)
        factors = tuple(changes.get(name, ()))
        orders.append((entry.file, WeightOrder(name, place, entry.dtype, entry.shape, factors, whole.get(name))))
    refuse([_dtype(order) for _, order in orders if order.dtype not in DTYPES])
    return tuple(orders)


def _own(module: str, layer: Layer | None) -> str | None:
    """The stored weight of a module alone, or a parameter itself; none for a tied output or experts stored apart."""
    if layer is None or len(layer.weights) != 1:
        return None
    (name,) = layer.weights
    return name if name in (module, f"{module}.weight") else None


def _head_problems(
    head: FullReplacement, entries: Mapping[str, TensorEntry], known: Mapping[str, Layer], taken: set[str]
) -> Iterator[Problem]:
    """A head takes the whole place of a weight no one else changes, or lies outside the base."""
    path, shape, entry = ("full_replacements", head.name), head.value.shape, entries.get(head.name)
    module = head.name.partition("#")[0].rpartition(".")[0]
    if entry is None and module in known:
        hint = "Release the model that the head belongs to, or serve the adapter."
        yield _no(path, "a whole weight of its own in the base", "none", hint)
    if entry is not None and (entry.shape != shape or head.name in taken):
        expected = f"a weight of shape {list(entry.shape)} that is not tied and has no factors"
        hint = "Resize or untie the base first, and train a weight or factors for it."
        yield _no(path, expected, f"{list(shape)}", hint)


def _dtype(order: WeightOrder) -> Problem:
    expected = f"one of {', '.join(sorted(DTYPES))}"
    return _no(("base", "weights", order.name), expected, order.dtype, "Release on a base of a wider dtype.")


def _figures(released: list[ReleasedWeight]) -> JsonObject:
    def root(values: Iterator[float]) -> float:
        return float(f"{sqrt(sum(value * value for value in values)):.{DIGITS}g}")

    return {"change": root(item.change for item in released), "rounding": root(item.rounding for item in released)}


def _no(path: tuple[str, ...], expected: str, observed: str, hint: str) -> Problem:
    return Problem(code="NO_DENSE_RELEASE", path=path, expected=expected, observed=observed, hint=hint)
