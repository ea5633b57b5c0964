"""Digests of blobs, tensors and manifests (docs/concepts.md, "Identity").

A blob digest is plain BLAKE3 so that `b3sum` checks it. Tensor and manifest digests use BLAKE3's derive-key mode with a
context of their own, so a blob can never pass for a tensor, nor one kind of manifest for another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final

from blake3 import blake3
from pydantic import StringConstraints

PREFIX: Final = "blake3:"
Digest = Annotated[str, StringConstraints(pattern=r"^blake3:[0-9a-f]{64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]

DTYPE_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip
"""Width in bytes of each dtype, as safetensors names it."""


@dataclass(frozen=True)
class BlobDigests:
    """Both digests of one file, from one read: BLAKE3 is identity, SHA-256 is what hubs and HTTP headers speak."""

    digest: Digest
    sha256: Sha256
    size: int


class BlobHasher:
    """Streaming BLAKE3 + SHA-256 over the same bytes."""

    def __init__(self) -> None:
        self._blake3 = blake3()
        self._sha256 = hashlib.sha256()
        self._size = 0

    def update(self, block: bytes | memoryview) -> None:
        """Take in the next bytes of the file."""
        self._blake3.update(block)
        self._sha256.update(block)
        self._size += len(block)

    def finish(self) -> BlobDigests:
        """The digests of everything taken in."""
        return BlobDigests(PREFIX + self._blake3.hexdigest(), f"sha256:{self._sha256.hexdigest()}", self._size)


class TensorHasher:
    """Streaming digest of one tensor: header first, then its raw little-endian contiguous bytes in any block sizes."""

    def __init__(self, dtype: str, shape: Sequence[int]) -> None:
        self._hash = _begun(dtype, tuple(shape)).copy()

    def update(self, block: bytes | memoryview) -> None:
        """Take in the next bytes of the tensor."""
        self._hash.update(block)

    def finish(self) -> Digest:
        """The digest of the whole tensor."""
        return PREFIX + self._hash.hexdigest()


@lru_cache(maxsize=256)
def _begun(dtype: str, shape: tuple[int, ...]) -> blake3:
    """The hash behind the header: many tensors have the same one."""
    return blake3(tensor_header(dtype, shape), derive_key_context="adapter-registry v1 tensor")


def tensor_header(dtype: str, shape: Sequence[int]) -> bytes:
    """``len(dtype) u8 | dtype | ndim u8 | each dim u64 LE``: numbers of another dtype or shape are another tensor."""
    name = dtype.encode("ascii")
    dims = b"".join(dim.to_bytes(8, "little") for dim in shape)
    return bytes([len(name)]) + name + bytes([len(shape)]) + dims


def blob_digest(data: bytes) -> Digest:
    """Plain BLAKE3-256 of a file's bytes."""
    return PREFIX + blake3(data).hexdigest()


def tensor_digest(dtype: str, shape: Sequence[int], data: bytes | memoryview) -> Digest:
    """Digest of one tensor given whole."""
    hasher = TensorHasher(dtype, shape)
    hasher.update(data)
    return hasher.finish()


def manifest_digest(kind: str, data: bytes) -> Digest:
    """Digest of a manifest's canonical bytes under its kind's own context."""
    return PREFIX + blake3(data, derive_key_context=f"adapter-registry v1 {kind}").hexdigest()
