"""Bytes to tensors and back: any offset, no file longer than it is, one rounding."""

from __future__ import annotations

import struct
from dataclasses import replace
from math import copysign, frexp, inf
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compose import ComposeRefusedError, TensorSource
from compose.operators.cat import cat
from compose.tensors import check_finite, map_tensor, raw_bytes, round_once
from schemas.methods import DtypeChoices
from tests.compose.building import module_input


@pytest.fixture
def source(tmp_path: Path) -> TensorSource:
    """A 2 x 3 float32 tensor 16 bytes into a file."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 16 + struct.pack("<6f", *range(6)) + b"tail")
    return TensorSource(path, 16, 24, "F32", (2, 3))


def test_a_tensor_is_read_at_its_offset_and_writes_stay_private(source: TensorSource) -> None:
    tensor = map_tensor(source)
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]
    tensor[0, 0] = 9
    assert map_tensor(source)[0, 0] == 0


@pytest.mark.parametrize("shift", [1, 4096, 4099])
def test_any_offset_will_do(source: TensorSource, shift: int) -> None:
    source.path.write_bytes(b"y" * shift + source.path.read_bytes())
    assert map_tensor(replace(source, offset=16 + shift)).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"dtype": "I32"}, "DTYPE_UNSUPPORTED"),
        ({"length": 20}, "TENSOR_LENGTH"),
        ({"shape": (0, 3), "length": 0}, "TENSOR_LENGTH"),
        ({"offset": 24}, "FILE_TOO_SHORT"),
    ],
)
def test_a_source_that_contradicts_its_file_is_refused(source: TensorSource, change: dict[str, Any], code: str) -> None:
    broken = replace(source, **change)
    with pytest.raises(ComposeRefusedError) as refused:
        map_tensor(broken)
    assert refused.value.code == code
    assert refused.value.problems[0].path == (str(source.path),)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_first_value_that_is_not_finite_is_named(value: float, dtype: torch.dtype) -> None:
    tensor = torch.zeros(3, 4, dtype=dtype)
    tensor[1, 2] = tensor[2, 0] = value
    with pytest.raises(ComposeRefusedError) as refused:
        check_finite(tensor, "m.lora_A")
    assert refused.value.problems[0].path == ("m.lora_A", 1, 2)


def test_finite_values_whose_sum_overflows_are_finite() -> None:
    check_finite(torch.full((4,), 1e308, dtype=torch.float64), "m.lora_A")


def nearest(value: float, dtype: torch.dtype) -> float:
    """Round to nearest even: divide by the spacing of `dtype` at the value, exact in binary, and round that."""
    digits, least = (11, -24) if dtype == torch.float16 else (8, -133)
    spacing = 2.0 ** max(frexp(value)[1] - digits, least)
    rounded = round(value / spacing) * spacing
    return copysign(inf, value) if abs(rounded) > torch.finfo(dtype).max else rounded


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e30, 1e30, allow_nan=False), st.sampled_from([torch.float16, torch.bfloat16]))
def test_rounding_to_16_bits_rounds_once(value: float, dtype: torch.dtype) -> None:
    assert round_once(torch.tensor(value, dtype=torch.float64), dtype).item() == nearest(value, dtype)


def test_a_value_just_above_a_tie_is_not_rounded_down_twice() -> None:
    # 1 + 2^-8 is half way between bfloat16 neighbours; 2^-40 more must round up, although float32 cannot hold it.
    value = torch.tensor([1 + 2**-8 + 2**-40, 1 + 2**-8, -1e300, float("inf")], dtype=torch.float64)
    assert round_once(value, torch.bfloat16).tolist() == [1 + 2**-7, 1.0, float("-inf"), float("inf")]
    assert value.to(torch.bfloat16)[0].item() == 1.0
    assert round_once(value[:1], torch.float32).item() == value[:1].to(torch.float32).item()


def test_a_value_below_the_normal_numbers_rounds_once_too() -> None:
    # Half way between bfloat16 neighbours at 2^-133 a unit, and 2^-170 more, which float32 cannot hold there.
    value = torch.tensor([2.5 * 2**-133 + 2**-170, -2.5 * 2**-133, 2**-140, 1.0], dtype=torch.float64)
    assert round_once(value, torch.bfloat16).tolist() == [3 * 2**-133, -2 * 2**-133, 0.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("weight", [0.29, 0.3, 1 / 3, -0.5])
def test_a_weighted_factor_is_rounded_once(weight: float, dtype: torch.dtype) -> None:
    # 50 times 0.29 is half way between bfloat16 neighbours but for what float32 cannot hold.
    values = torch.arange(0, 1 << 16, 37, dtype=torch.int32).to(torch.int16).view(dtype)
    values = values[values.isfinite() & (values != 0)][None]
    store = DtypeChoices(store="float16" if dtype == torch.float16 else "bfloat16")
    stored = cat(module_input([(values, torch.ones(1, 1, dtype=dtype))], weights=[weight], dtype=store)).a
    assert stored[0].tolist() == [nearest(value * weight, dtype) for value in values[0].tolist()]


def test_raw_bytes_are_little_endian_and_contiguous() -> None:
    assert bytes(raw_bytes(torch.tensor([[1.0, 2.0]]).T)) == struct.pack("<2f", 1.0, 2.0)
    assert bytes(raw_bytes(torch.tensor([1.0], dtype=torch.bfloat16))) == b"\x80\x3f"
