"""The strict header reader against hand-made faults, the safetensors library and random damage."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from registry.errors import RefusedError
from registry.formats.safetensors_file import Header, read_header

A = {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}
B = {"dtype": "F16", "shape": [2], "data_offsets": [8, 12]}


def packed(header: object, data: bytes = bytes(12)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def read(content: bytes, **limits: int) -> Header:
    return read_header(BytesIO(content), len(content), "f.safetensors", **limits)


def code_of(content: bytes, **limits: int) -> str:
    with pytest.raises(RefusedError) as caught:
        read(content, **limits)
    for problem in caught.value.problems:
        assert problem.path[0] == "f.safetensors"
        assert problem.expected
        assert problem.observed
        assert problem.hint
    return caught.value.code


def test_header_gives_absolute_offsets_in_file_order() -> None:
    content = packed({"b": B, "a": A, "__metadata__": {"format": "pt"}})
    start = len(content) - 12
    header = read(content)
    assert [(t.name, t.dtype, t.shape, t.offset - start, t.length) for t in header.tensors] == [
        ("a", "F32", (2, 1), 0, 8),
        ("b", "F16", (2,), 8, 4),
    ]
    assert header.data_start == start


def test_header_agrees_with_the_safetensors_library() -> None:
    arrays: dict[str, NDArray[Any]] = {
        "x": np.arange(6, dtype=np.float64).reshape(2, 3),
        "y": np.ones(5, dtype=np.float16),
    }
    content = save(arrays)
    for tensor in read(content).tensors:
        data = content[tensor.offset : tensor.offset + tensor.length]
        assert data == arrays[tensor.name].tobytes()
        assert tensor.shape == arrays[tensor.name].shape


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "HEADER_TRUNCATED"),
        (b"\x05\0\0", "HEADER_TRUNCATED"),
        ((50).to_bytes(8, "little") + b"{}", "HEADER_TRUNCATED"),
        ((2**63).to_bytes(8, "little") + b"{}", "HEADER_TOO_LARGE"),
        (packed(b"[]"), "HEADER_INVALID"),
        (packed(b"{"), "JSON_INVALID"),
        (packed(b"{\xff}"), "JSON_INVALID"),
        (packed(b'{"a": NaN}'), "JSON_NOT_FINITE"),
        (packed(b'{"a": 1, "a": 2}'), "JSON_DUPLICATE_KEY"),
        (packed(b'{"a":' + b"[" * 100_000), "JSON_INVALID"),
        (packed({"__metadata__": {"a": 1}, "a": A, "b": B}), "HEADER_INVALID"),
        (packed({"": A, "b": B}), "HEADER_INVALID"),
        (packed({"a\n": A, "b": B}), "HEADER_INVALID"),
        (packed(b'{"\\ud800": 1}'), "HEADER_INVALID"),
        (packed({"a": 1, "b": B}), "HEADER_INVALID"),
        (packed({"a": A | {"more": 1}, "b": B}), "HEADER_INVALID"),
        (packed({"a": A | {"dtype": "F128"}, "b": B}), "DTYPE_UNKNOWN"),
        (packed({"a": A | {"dtype": ["F32"]}, "b": B}), "DTYPE_UNKNOWN"),
        (packed({"a": A | {"shape": [2, -1]}, "b": B}), "SHAPE_INVALID"),
        (packed({"a": A | {"shape": [True, 2]}, "b": B}), "SHAPE_INVALID"),
        (packed({"a": A | {"shape": [2.0, 1]}, "b": B}), "SHAPE_INVALID"),
        (packed({"a": A | {"shape": [1] * 33}, "b": B}), "SHAPE_INVALID"),
        (packed({"a": A | {"shape": None}, "b": B}), "SHAPE_INVALID"),
        (packed({"a": A | {"data_offsets": [8, 0]}, "b": B}), "OFFSETS_INVALID"),
        (packed({"a": A | {"data_offsets": [-8, 0]}, "b": B}), "OFFSETS_INVALID"),
        (packed({"a": A | {"data_offsets": [0, 8, 8]}, "b": B}), "OFFSETS_INVALID"),
        (packed({"a": A | {"shape": [3, 1]}, "b": B}), "EXTENT_MISMATCH"),
        (packed({"a": A | {"shape": [2**52, 2**52]}, "b": B}), "EXTENT_MISMATCH"),
        (packed({"a": A, "b": B | {"data_offsets": [6, 10]}}), "OFFSETS_OVERLAP"),
        (packed({"a": A, "b": A}), "OFFSETS_OVERLAP"),
        (packed({"b": B}), "OFFSETS_GAP"),
        (packed({"a": A, "b": B}, bytes(11)), "FILE_TRUNCATED"),
        (packed({"a": A, "b": B}, bytes(13)), "TRAILING_BYTES"),
        (packed({}, b"x"), "TRAILING_BYTES"),
        (b"PK\x03\x04" + bytes(60), "PICKLE_REFUSED"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "PICKLE_REFUSED"),
        (b"\x80\x04\x00\x00\x00\x00\x00\x00" + bytes(2000), "PICKLE_REFUSED"),
    ],
)
def test_header_refuses_with_its_own_code(content: bytes, code: str) -> None:
    assert code_of(content) == code


def test_header_above_the_bound_is_refused_before_it_is_read() -> None:
    class OnlyTheLength(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size == 8
            return super().read(size)

    content = packed({"a": A, "b": B})
    with pytest.raises(RefusedError) as caught:
        read_header(OnlyTheLength(content), len(content), "f.safetensors", largest=20)
    assert caught.value.code == "HEADER_TOO_LARGE"


def test_header_whose_length_looks_like_a_pickle_is_read() -> None:
    text = json.dumps({"a": A, "b": B}).encode().ljust(0x0280)
    content = packed(text)
    assert content.startswith(b"\x80\x02")
    assert len(read(content).tensors) == 2


def test_header_reports_all_tensors_at_once() -> None:
    bad = {"a": A | {"dtype": "X"}, "b": B | {"shape": [9]}, "c": 3}
    with pytest.raises(RefusedError) as caught:
        read(packed(bad))
    found = {problem.path: problem.code for problem in caught.value.problems}
    assert found == {
        ("f.safetensors", "a"): "DTYPE_UNKNOWN",
        ("f.safetensors", "b"): "EXTENT_MISMATCH",
        ("f.safetensors", "c"): "HEADER_INVALID",
    }


def test_header_with_a_million_faults_is_refused_with_a_bounded_report() -> None:
    bad = b"{" + b",".join(b'"%d":0' % n for n in range(200_000)) + b"}"
    with pytest.raises(RefusedError) as caught:
        read(packed(bad))
    assert len(caught.value.problems) <= 100
    twice = b"{" + b",".join(b'"%d":0,"%d":0' % (n, n) for n in range(100_000)) + b"}"
    assert code_of(packed(twice)) == "JSON_DUPLICATE_KEY"


VALID = save({"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones(4, dtype=np.float16)})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_damaged_files_are_refused_or_read_as_the_library_reads_them(data: st.DataObject) -> None:
    content = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.integers(0, len(content)))]) if data.draw(st.booleans()) else bytes(content)
    agrees_with_the_library(damaged)


@given(st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), JSON, max_size=4), JSON)
def test_arbitrary_headers_are_refused_or_read_as_the_library_reads_them(entry: dict[str, Any], other: Any) -> None:
    agrees_with_the_library(packed({"a": entry, "b": B, "c": other}))


def agrees_with_the_library(content: bytes) -> None:
    try:
        header = read(content)
    except RefusedError:
        return
    try:
        arrays = load(content)
    except (SafetensorError, KeyError, TypeError, AttributeError):
        # The library reads fewer dtypes into numpy than the format has.
        assert any(t.dtype in {"BF16", "F8_E4M3", "F8_E5M2"} for t in header.tensors)
        return
    assert {tensor.name: tensor.shape for tensor in header.tensors} == {k: v.shape for k, v in arrays.items()}
    for tensor in header.tensors:
        assert content[tensor.offset : tensor.offset + tensor.length] == arrays[tensor.name].tobytes()
