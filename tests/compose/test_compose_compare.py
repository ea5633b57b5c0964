"""The relative distance of two stored adapters, which a recomputation is judged by."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
import torch

from compose import FactorSource
from compose.compare import relative_difference
from tests.compose.building import Pair, member, random_pair


def stored(folder: Path, name: str, pair: Pair, scale: float = 1.0) -> FactorSource:
    """One pair on disk."""
    return member(folder, name, {"m": pair}, scale=scale).factors[0]


def test_the_same_delta_in_another_gauge_and_scale_is_at_distance_zero(tmp_path: Path) -> None:
    a, b = random_pair(2, 5, 4, seed=1)
    one, other = stored(tmp_path, "one", (a, b)), stored(tmp_path, "two", (a * 2, b / 8), scale=4.0)
    assert relative_difference(one, other) == pytest.approx(0.0, abs=1e-15)


def test_a_doubled_delta_is_at_distance_one(tmp_path: Path) -> None:
    pair = random_pair(2, 5, 4, seed=1)
    assert relative_difference(stored(tmp_path, "one", pair), stored(tmp_path, "two", pair, 2.0)) == pytest.approx(1.0)


def test_from_zero_every_other_delta_is_infinitely_far(tmp_path: Path) -> None:
    a, b = random_pair(2, 5, 4, seed=1)
    zero, other = stored(tmp_path, "zero", (a, torch.zeros_like(b))), stored(tmp_path, "one", (a, b))
    assert (relative_difference(zero, zero), relative_difference(zero, other)) == (0.0, inf)
