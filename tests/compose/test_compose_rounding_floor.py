"""A product that cancels inside its factors has the rank of its exact value, not of the rounding left behind."""

from __future__ import annotations

import pytest
import torch

from compose.module import LoadedFactor, ModuleInput
from compose.operators import OPERATORS
from schemas.methods import Choices, Method, Space

ADAPTER = "blake3:" + "1" * 64


def module(b: list[list[float]], a: list[list[float]], rank: int) -> ModuleInput:
    """One member of weight and scale 1."""
    factor = LoadedFactor(ADAPTER, 1.0, 1.0, torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
    return ModuleInput("layer", (factor,), Choices(rank=rank), rank)


def nearly_zero() -> ModuleInput:
    """B = [u + d, -u + d] over two equal rows: exactly 2 d (1, 1, 1)^T times the row, of rank one."""
    d = 2.0**-20
    return module([[0.7, -0.7 + d], [1.3, -1.3 + d], [0.1, -0.1 + d]], [[1.1, 2.3, 0.9], [1.1, 2.3, 0.9]], 2)


@pytest.mark.parametrize("method", ["cat", "delta_svd"])
def test_a_nearly_cancelling_member_has_rank_one(method: Method) -> None:
    assert OPERATORS[method, "delta"](nearly_zero()).figures.numerical_rank == 1


@pytest.mark.parametrize(("method", "space"), [("cat", "delta"), ("factor_linear", "factor")])
def test_a_cancelling_member_has_rank_zero_and_no_gauge(method: Method, space: Space) -> None:
    figures = OPERATORS[method, space](
        module([[1.0, -1.0], [3.0, -3.0], [0.1, -0.1]], [[1.0, 2.0], [1.0, 2.0]], 2)
    ).figures
    assert figures.numerical_rank == 0
    assert figures.gauge_sensitivity is None
