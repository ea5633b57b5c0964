"""The thin QR is the same by Cholesky as by Householder, and dependent columns are left to the latter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from compose.lowrank import thin, triangle


def columns(spread: float) -> Tensor:
    """Six columns of very different lengths whose directions differ by `spread` from one another."""
    generator = torch.Generator().manual_seed(3)
    shared, own = torch.randn(40, 1, generator=generator), torch.randn(40, 6, generator=generator)
    return (shared + spread * own).double() * torch.logspace(-90, 90, 6, dtype=torch.float64)


@pytest.mark.parametrize(("spread", "formed"), [(1.0, False), (1e-6, True), (0.0, True)])
def test_triangle_and_basis_reproduce_the_columns(spread: float, formed: bool) -> None:
    x = columns(spread)
    found = thin(x)
    assert (found.q is not None) == formed
    lengths = torch.linalg.vector_norm(x, dim=0)
    torch.testing.assert_close(found.times(found.r) / lengths, x / lengths, rtol=0, atol=1e-14)
    torch.testing.assert_close(found.transposed_times(found.times(torch.eye(6).double())), torch.eye(6).double())
    reference = torch.linalg.qr(x, mode="r").R
    torch.testing.assert_close(triangle(x).abs() / lengths, reference.abs() / lengths, rtol=0, atol=1e-12)


@pytest.mark.parametrize("x", [torch.zeros(5, 2).double(), torch.ones(2, 5).double(), columns(1.0) * 1e-100])
def test_zero_wide_and_vanishing_columns_have_a_triangle_of_their_length(x: Tensor) -> None:
    r = triangle(x)
    torch.testing.assert_close(torch.linalg.vector_norm(r, dim=0), torch.linalg.vector_norm(x, dim=0))
