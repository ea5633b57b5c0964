"""Adapters put into a registry as manifests and tensors, whatever directory they might have come in."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from registry.db import Change, blobs, files, manifests, names, tensors
from registry.service import resolve
from registry.service.context import Context
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, Scale, make_scale, sorted_factors
from schemas.base import TensorRef
from schemas.digests import Digest, tensor_digest
from tests.support import tiny

Array = NDArray[Any]
DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16"}
ONE = make_scale(1.0, "explicit", 1)


@dataclass(frozen=True)
class Factor:
    """One module's arrays: a, b and extras by role; further fields of its manifest by name."""

    a: Array
    b: Array
    scale: Scale = ONE
    extra: Mapping[str, Array] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def delta(self) -> NDArray[np.float64]:
        """``s b diag(E) a`` in float64."""
        e = self.extra.get("E", np.ones((self.a.shape[0], 1)))
        product: NDArray[np.float64] = self.scale.value * (self.b.astype(np.float64) @ (e * self.a.astype(np.float64)))
        return product


def random_factor(seed: int, rank: int = 2, scale: Scale = ONE, **fields: Any) -> Factor:
    """A square factor of the tiny base."""
    draw = np.random.default_rng(seed)
    a = draw.normal(size=(rank, tiny.HIDDEN)).astype(np.float32)
    b = draw.normal(size=(tiny.HIDDEN, rank)).astype(np.float32)
    return Factor(a, b, scale, fields=fields)


def ref(array: Array) -> TensorRef:
    """An array by content."""
    dtype = DTYPES[array.dtype.name]
    data = np.ascontiguousarray(array).tobytes()
    return TensorRef(tensor=tensor_digest(dtype, array.shape, data), dtype=dtype, shape=array.shape)


def put(
    context: Context,
    base: str,
    name: str,
    factors: Mapping[str, Factor],
    heads: Mapping[str, Array] | None = None,
    **fields: Any,
) -> AdapterManifest:
    """Store an adapter under a name; `fields` override its manifest's."""
    with context.database.reading() as reader:
        on = resolve.digest_of(reader, base)
    adapter = AdapterManifest(
        base=on,
        factors=sorted_factors([_factor(on, module, factor) for module, factor in factors.items()]),
        full_replacements=tuple(
            FullReplacement(name=key, value=ref(value)) for key, value in sorted((heads or {}).items())
        ),
        **({"family": "lora"} | fields),
    )
    arrays = {f"{module}.{role}": value for module, factor in factors.items() for role, value in _arrays(factor)}
    _store(context, name, adapter, arrays | dict(heads or {}))
    return adapter


def _factor(base: Digest, module: str, factor: Factor) -> FactorManifest:
    return FactorManifest(
        base=base,
        a=ref(factor.a),
        b=ref(factor.b),
        rank=factor.a.shape[0],
        scale=factor.scale,
        extra={role: ref(value) for role, value in factor.extra.items()},
        **({"module": module, "source": "lora"} | dict(factor.fields)),
    )


def _arrays(factor: Factor) -> list[tuple[str, Array]]:
    return [("a", factor.a), ("b", factor.b), *factor.extra.items()]


def _store(context: Context, name: str, adapter: AdapterManifest, arrays: Mapping[str, Array]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adapter.safetensors"
        save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, path)
        start = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        header = _header(path)
        blob = context.store.put_file(path)

    def work(change: Change) -> None:
        manifests.put(change, adapter)
        blobs.put(change, [blob])
        blobs.mark_present(change, [blob.digest])
        files.put(change, adapter.digest, [("adapter.safetensors", blob.digest)])
        places = []
        for key, value in arrays.items():
            first, end = header[key]["data_offsets"]
            found = ref(value)
            places.append(
                tensors.Location(found.tensor, blob.digest, start + first, end - first, found.dtype, found.shape)
            )
        tensors.put(change, places)
        names.assign(change, name, AdapterManifest.KIND, adapter.digest)

    context.database.change("test.put", "tester", work)


def _header(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8 : 8 + length])
    return header


def arrays_of(context: Context, adapter: AdapterManifest) -> dict[str, Factor]:
    """The stored numbers of an adapter, by module."""
    with context.database.reading() as reader:
        held = resolve.places(context, reader, [item for item in resolve.tensors_of(adapter) if 0 not in item.shape])

    def read(item: TensorRef) -> Array:
        if 0 in item.shape:
            return np.zeros(item.shape, np.float32)
        place = held[item.tensor]
        return decoded(context.store.read(place.blob, place.offset, place.length), item)

    return {
        factor.module: Factor(
            read(factor.a), read(factor.b), factor.scale, {role: read(item) for role, item in factor.extra.items()}
        )
        for factor in adapter.factors
    }


def decoded(data: bytes, item: TensorRef) -> Array:
    """Raw bytes as numbers; bfloat16, which numpy lacks, as float32."""
    if item.dtype == "BF16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(item.shape)
    name = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[item.dtype]
    return np.frombuffer(data, name).reshape(item.shape)


def load(context: Context, digest: Digest) -> AdapterManifest:
    """The adapter of a digest."""
    with context.database.reading() as reader:
        return resolve.adapter_of(reader, digest)
