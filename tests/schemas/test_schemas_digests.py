"""Digests against BLAKE3 and SHA-256 computed another way, and what must and must not change them."""

from __future__ import annotations

import hashlib
import struct

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from schemas.digests import (
    DTYPE_BYTES,
    BlobHasher,
    TensorHasher,
    blob_digest,
    manifest_digest,
    tensor_digest,
    tensor_header,
)
from schemas.manifests import KINDS

# From the test vectors published with BLAKE3.
EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
ONE_ZERO_BYTE = "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in blocks that end at these places."""
    ends = [*sorted(place % (len(data) + 1) for place in places), len(data)]
    starts = [0, *ends[:-1]]
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def test_a_blob_digest_is_what_b3sum_prints() -> None:
    assert blob_digest(b"") == f"blake3:{EMPTY}"
    assert blob_digest(b"\0") == f"blake3:{ONE_ZERO_BYTE}"


@given(st.binary(max_size=5000), st.lists(st.integers(0, 5000), max_size=4))
def test_a_blob_read_in_any_blocks_has_the_digests_of_the_whole(data: bytes, places: list[int]) -> None:
    hasher = BlobHasher()
    for block in cut(data, places):
        hasher.update(memoryview(block))
    found = hasher.finish()
    assert found.digest == blob_digest(data)
    assert found.sha256 == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert found.size == len(data)


@given(
    st.sampled_from(sorted(DTYPE_BYTES)),
    st.lists(st.integers(0, 2**64 - 1), max_size=4),
    st.binary(max_size=200),
    st.lists(st.integers(0, 200), max_size=4),
)
def test_a_tensor_digest_is_the_derived_key_hash_of_header_and_bytes_in_any_blocks(
    dtype: str, shape: list[int], data: bytes, places: list[int]
) -> None:
    header = struct.pack("<B", len(dtype)) + dtype.encode() + struct.pack(f"<B{len(shape)}Q", len(shape), *shape)
    expected = blake3(header + data, derive_key_context="adapter-registry v1 tensor").hexdigest()
    hasher = TensorHasher(dtype, shape)
    for block in cut(data, places):
        hasher.update(block)
    assert hasher.finish() == tensor_digest(dtype, shape, memoryview(data)) == f"blake3:{expected}"


def test_the_tensor_header_is_spelled_byte_by_byte() -> None:
    assert tensor_header("BF16", (2, 258)) == b"\x04BF16\x02" + b"\x02" + b"\0" * 7 + b"\x02\x01" + b"\0" * 6
    assert tensor_header("F32", ()) == b"\x03F32\x00"


def test_the_same_bytes_under_another_dtype_or_shape_are_another_tensor() -> None:
    data = bytes(range(16))
    seen = {
        tensor_digest(dtype, shape, data)
        for dtype, shape in [("F32", (4,)), ("F32", (2, 2)), ("F32", (4, 1)), ("I32", (4,)), ("F64", (2,))]
    }
    assert len(seen) == 5


@given(st.binary(max_size=100))
def test_no_blob_tensor_or_manifest_passes_for_another(data: bytes) -> None:
    kinds = [*KINDS, "weights"]
    seen = {
        blob_digest(data),
        tensor_digest("U8", (len(data),), data),
        *(manifest_digest(kind, data) for kind in kinds),
    }
    assert len(seen) == len(kinds) + 2


def test_a_manifest_digest_uses_the_context_of_its_kind() -> None:
    expected = blake3(b"{}", derive_key_context="adapter-registry v1 adapter").hexdigest()
    assert manifest_digest("adapter", b"{}") == f"blake3:{expected}"


@pytest.mark.parametrize(("dtype", "width"), [("F32", 4), ("BF16", 2), ("F64", 8), ("F8_E4M3", 1), ("BOOL", 1)])
def test_dtype_widths_are_those_of_safetensors(dtype: str, width: int) -> None:
    assert DTYPE_BYTES[dtype] == width
