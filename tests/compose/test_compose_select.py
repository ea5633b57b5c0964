"""The k-th magnitude equals that of a stable sort, whatever the tiles, equal magnitudes and float patterns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compose import select
from compose.select import NOTHING, Threshold, kept_count, kth_magnitude


def tiles_of(values: Tensor, height: int) -> list[Tensor]:
    return list(torch.split(values.view(-1), height))


def kept(values: Tensor, threshold: Threshold, height: int) -> list[int]:
    found: list[int] = []
    start = 0
    for tile in tiles_of(values, height):
        trimmed = threshold.trim(tile.view(1, -1), start).view(-1)
        assert torch.equal(trimmed[trimmed != 0], tile[trimmed != 0])
        found += (trimmed.nonzero().view(-1) + start).tolist()
        start += len(tile)
    return found


def by_sorting(values: Tensor, k: int) -> list[int]:
    """Largest magnitude first, equal ones by lower index; a kept zero cannot be told from a dropped one."""
    numbers = values.view(-1).abs().tolist()
    first = sorted(range(len(numbers)), key=lambda i: (-numbers[i], i))[:k]
    return sorted(index for index in first if numbers[index])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 5e-324]), st.floats(-1e300, 1e300)),
        min_size=1,
        max_size=60,
    ),
    st.data(),
)
def test_exactly_k_are_kept_and_they_are_those_of_a_stable_sort(numbers: list[float], data: st.DataObject) -> None:
    values = torch.tensor(numbers, dtype=data.draw(st.sampled_from([torch.float64, torch.float32]))).nan_to_num()
    k, height = data.draw(st.integers(0, len(numbers))), data.draw(st.integers(1, len(numbers)))

    def tiles() -> Iterator[Tensor]:
        return iter(tiles_of(values, height))

    assert kept(values, kth_magnitude(tiles, k), height) == by_sorting(values, k)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_are_selected_without_being_collected_when_too_many_share_a_pattern(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = torch.tensor([3.0, -2.0, 2.0, 2.0, -2.0, 1.0], dtype=dtype)
    monkeypatch.setattr(select, "_FEW", 0)
    threshold = kth_magnitude(lambda: iter(tiles_of(values, 2)), 3)
    assert threshold == Threshold(2.0, 2)
    assert kept(values, threshold, 2) == [0, 1, 2]


def test_nothing_keeps_nothing() -> None:
    assert kth_magnitude(lambda: iter([torch.ones(3)]), 0) is NOTHING
    assert not NOTHING.trim(torch.tensor([[1e308, 0.0]], dtype=torch.float64), 0).any()


def test_k_follows_its_named_rule() -> None:
    assert [kept_count(0.5, n, "floor") for n in (4, 5, 1)] == [2, 2, 0]
    assert [kept_count(0.5, n, "round") for n in (4, 5, 7)] == [2, 2, 4]
    assert kept_count(1.0, 9, "floor") == 9


def test_a_sample_that_sees_only_large_values_costs_a_second_look_and_no_place() -> None:
    # The sample takes one value in 251: here each of those is large, and no other one is.
    generator = torch.Generator().manual_seed(3)
    values = torch.rand(251 * 400, generator=generator, dtype=torch.float64)
    values[::251] += 1000.0
    k = len(values) // 2
    threshold = kth_magnitude(lambda: iter(tiles_of(values, 5000)), k)
    assert kept(values, threshold, 5000) == by_sorting(values, k)
