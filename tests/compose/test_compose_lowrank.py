"""The thin QR is the same by Cholesky as by Householder, and figures keep their digits where a trace would not."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from compose.lowrank import product_norm, thin, trace_norm, triangle
from compose.operators.delta_svd import delta_svd
from schemas.methods import DtypeChoices
from tests.compose.building import module_input, product, random_pair


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
    basis = found.times(torch.eye(6).double())
    torch.testing.assert_close(basis.T @ basis, torch.eye(6).double())
    reference = torch.linalg.qr(x, mode="r").R
    torch.testing.assert_close(triangle(x).abs() / lengths, reference.abs() / lengths, rtol=0, atol=1e-12)


@pytest.mark.parametrize("x", [torch.zeros(5, 2).double(), torch.ones(2, 5).double(), columns(1.0) * 1e-100])
def test_zero_wide_and_vanishing_columns_have_a_triangle_of_their_length(x: Tensor) -> None:
    r = triangle(x)
    torch.testing.assert_close(torch.linalg.vector_norm(r, dim=0), torch.linalg.vector_norm(x, dim=0))


def test_a_norm_that_cancels_in_the_trace_keeps_its_digits() -> None:
    generator = torch.Generator().manual_seed(5)
    b, a = torch.randn(30, 1, generator=generator).double(), torch.randn(1, 20, generator=generator).double()
    # Two addends of size 1 that leave one part in a million: tr(G H) alone would keep four digits of it.
    left, right = torch.cat([b, b], dim=1), torch.cat([a, (2.0**-20 - 1.0) * a])
    assert trace_norm(left.T @ left, right @ right.T) is None
    exact = 2.0**-20 * float(torch.linalg.norm(b) * torch.linalg.norm(a))
    assert product_norm(left, right) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("store", ["bfloat16", "float32"])
@pytest.mark.parametrize("rank", [2, 6])
def test_the_error_of_a_stored_pair_is_its_distance_to_the_exact_sum(
    store: Literal["bfloat16", "float32"], rank: int
) -> None:
    pairs = [random_pair(3, 9, 8, seed) for seed in (1, 2)]
    made = delta_svd(module_input(pairs, rank=rank, weights=[0.7, -1.3], dtype=DtypeChoices(store=store)))
    exact = sum(weight * b @ a for weight, (a, b) in zip((0.7, -1.3), pairs, strict=True))
    distance = float(torch.linalg.norm(exact - product(made)))
    assert made.figures.error == pytest.approx(distance, rel=1e-8)


def test_the_error_keeps_its_digits_where_the_basis_is_least_orthogonal() -> None:
    # Columns as dependent as Cholesky takes them: what it lost showed first here.
    generator = torch.Generator().manual_seed(7)
    shared, own = torch.randn(60, 1, generator=generator), torch.randn(60, 4, generator=generator)
    near = (shared + 0.025 * own).double()
    assert thin(near).q is None
    made = delta_svd(module_input([(near.T.contiguous(), near)], rank=4, dtype=DtypeChoices(store="bfloat16")))
    distance = float(torch.linalg.norm(near @ near.T - product(made)))
    assert made.figures.error == pytest.approx(distance, rel=5e-10)
