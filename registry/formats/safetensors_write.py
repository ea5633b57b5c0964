"""Safetensors files with the same bytes for the same tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Final

from registry.errors import DigestMismatchError
from registry.formats.report import problem
from schemas.base import TensorRef
from schemas.canonical import JsonObject
from schemas.digests import DTYPE_BYTES, TensorHasher

ReadTensor = Callable[[TensorRef], Iterable[bytes] | bytes]
_ALIGNMENT: Final = 8


def write_safetensors(path: Path, tensors: Mapping[str, TensorRef], read_tensor: ReadTensor) -> None:
    """Write tensors in the order of their names into a new file, streaming and checking each against its digest.

    Raises:
        DigestMismatchError: `TENSOR_DIGEST_MISMATCH`.
        FileExistsError: the file is there; nothing is overwritten.
    """
    names = sorted(tensors)
    with path.open("xb") as stream:
        stream.write(_header(tensors, names))
        for name in names:
            for block in _checked(name, tensors[name], read_tensor):
                stream.write(block)


def _header(tensors: Mapping[str, TensorRef], names: list[str]) -> bytes:
    header: JsonObject = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        ref = tensors[name]
        end = offset + prod(ref.shape) * DTYPE_BYTES[ref.dtype]
        header[name] = {"dtype": ref.dtype, "shape": list(ref.shape), "data_offsets": [offset, end]}
        offset = end
    data = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    data += b" " * (-len(data) % _ALIGNMENT)
    return len(data).to_bytes(8, "little") + data


def _checked(name: str, ref: TensorRef, read_tensor: ReadTensor) -> Iterable[bytes]:
    content = read_tensor(ref)
    hasher = TensorHasher(ref.dtype, ref.shape)
    for block in [content] if isinstance(content, bytes) else content:
        hasher.update(block)
        yield block
    found = hasher.finish()
    if found != ref.tensor:
        hint = "The stored bytes are damaged: verify the store and restore the blob."
        raise DigestMismatchError(problem("TENSOR_DIGEST_MISMATCH", (name,), ref.tensor, found, hint))
