"""Finite and zero checks against torch, over every bit pattern where there are few enough."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from registry.formats.values import ValueScan, all_zero


@pytest.mark.parametrize(
    ("dtype", "bits", "torch_dtype"),
    [
        ("F16", np.uint16, torch.float16),
        ("BF16", np.uint16, torch.bfloat16),
        ("F8_E5M2", np.uint8, torch.float8_e5m2),
        ("F8_E4M3", np.uint8, torch.float8_e4m3fn),
    ],
)
def test_every_pattern_is_judged_as_torch_judges_it(
    dtype: str, bits: type[np.unsignedinteger], torch_dtype: torch.dtype
) -> None:
    patterns = np.arange(2 ** (8 * np.dtype(bits).itemsize), dtype=bits)
    values = torch.from_numpy(patterns).view(torch_dtype).to(torch.float64)
    finite, zero = torch.isfinite(values).numpy(), (values == 0).numpy()
    for index, pattern in enumerate(patterns):
        scan = ValueScan(dtype)
        scan.update(pattern.tobytes())
        assert (scan.first_not_finite is None) == finite[index]
        assert scan.all_zero == zero[index]


@given(arrays(np.float32, st.integers(1, 30), elements=st.floats(width=32)), st.integers(1, 20))
def test_first_not_finite_is_the_flat_index_whatever_the_blocks(values: np.ndarray, step: int) -> None:
    scan, data = ValueScan("F32"), values.tobytes()
    for start in range(0, len(data), step):
        scan.update(data[start : start + step])
    bad = np.flatnonzero(~np.isfinite(values))
    assert scan.first_not_finite == (int(bad[0]) if bad.size else None)
    assert scan.all_zero == (not values.any())


@given(
    st.lists(arrays(np.float32, st.integers(0, 5), elements=st.sampled_from([0.0, -0.0, 1e-45, np.nan])), max_size=5)
)
def test_one_look_tells_zeros_of_many_tensors_or_nothing(tensors: list[np.ndarray]) -> None:
    lengths = [values.nbytes for values in tensors]
    found = all_zero(memoryview(b"".join(values.tobytes() for values in tensors)), "F32", lengths)
    plain = tensors and all(values.size and np.isfinite(values).all() for values in tensors)
    assert found == ([not values.any() for values in tensors] if plain else None)


def test_double_precision_is_checked() -> None:
    scan = ValueScan("F64")
    scan.update(np.array([1.0, -np.inf]).tobytes())
    assert scan.first_not_finite == 1


def test_integers_are_finite() -> None:
    scan = ValueScan("I64")
    scan.update(b"\xff" * 16)
    assert scan.first_not_finite is None
    assert not scan.all_zero
