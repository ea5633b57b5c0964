"""The truncated SVD discards no more than it certifies, against LAPACK's whole SVD."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from compose import krylov
from compose.krylov import FAILURE_PROBABILITY, TOLERANCE, truncated_svd
from compose.passes import gaussian, orthonormal
from compose.probe import norm_factor


def noisy(rows: int, columns: int, signal: int, noise: float, seed: int) -> Tensor:
    """A low-rank signal in noise, as a trimmed or dropped delta is."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, signal, generator=generator, dtype=torch.float64)
    right = torch.randn(signal, columns, generator=generator, dtype=torch.float64)
    return left @ right + noise * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def optimum(matrix: Tensor, rank: int) -> tuple[Tensor, float]:
    values = torch.linalg.svdvals(matrix)
    return values[:rank], float(values[rank:].square().sum())


@pytest.mark.parametrize(
    ("rows", "columns", "signal", "noise", "rank"),
    [(400, 300, 6, 1.0, 4), (300, 500, 12, 3.0, 8), (320, 320, 3, 0.1, 4), (330, 280, 40, 0.5, 1)],
)
def test_a_certified_truncation_is_within_its_bound(
    rows: int, columns: int, signal: int, noise: float, rank: int
) -> None:
    matrix = noisy(rows, columns, signal, noise, seed=rank)
    found = truncated_svd(matrix, rank)
    values, best = optimum(matrix, rank)
    discarded = float((matrix - found.u * found.s @ found.vh).square().sum())
    assert discarded - best <= found.certificate.excess + 1e-9 * best
    assert found.certificate.excess <= TOLERANCE * discarded
    assert found.certificate.failure_probability in (0.0, FAILURE_PROBABILITY)
    torch.testing.assert_close(found.s, values, rtol=1e-4, atol=0)
    for basis in (found.u, found.vh.T):
        torch.testing.assert_close(basis.T @ basis, torch.eye(rank, dtype=torch.float64), rtol=0, atol=1e-12)


def test_it_is_certified_without_a_whole_svd(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a whole SVD")

    monkeypatch.setattr(krylov, "_whole", never)
    found = truncated_svd(noisy(400, 300, 6, 1.0, seed=1), 4)
    assert found.certificate.failure_probability == FAILURE_PROBABILITY
    assert found.certificate.basis < 300


@pytest.mark.parametrize("spread", [0.0, 1e-3])
def test_a_flat_spectrum_costs_the_whole_svd_rather_than_the_bound(spread: float) -> None:
    q = torch.linalg.qr(noisy(280, 280, 1, 1.0, seed=2)).Q
    matrix = q * torch.linspace(1 - spread, 1 + spread, 280, dtype=torch.float64)
    found = truncated_svd(matrix, 3)
    assert found.certificate.basis == 280
    torch.testing.assert_close(found.s, optimum(matrix, 3)[0])
    assert float((matrix - found.u * found.s @ found.vh).square().sum()) == pytest.approx(277, rel=5e-3)


@pytest.mark.parametrize("signal", [0, 1, 3, 30])
def test_a_matrix_of_lower_rank_is_found_exactly(signal: int) -> None:
    matrix = noisy(300, 400, signal, 0.0, seed=signal) if signal else torch.zeros(300, 400, dtype=torch.float64)
    rank = 4
    found = truncated_svd(matrix, rank)
    values, best = optimum(matrix, rank)
    torch.testing.assert_close(found.s, values, rtol=1e-9, atol=1e-9)
    discarded = float((matrix - found.u * found.s @ found.vh).square().sum())
    assert discarded - best <= 1e-12 * float(matrix.square().sum())


def test_exact_mode_and_small_sides_use_the_whole_svd() -> None:
    large, small = noisy(400, 300, 6, 1.0, seed=3), noisy(20, 9, 2, 1.0, seed=4)
    for matrix, exact in ((large, True), (small, False)):
        found = truncated_svd(matrix, 2, exact=exact)
        torch.testing.assert_close(found.s, optimum(matrix, 2)[0])
        assert found.certificate.excess == 0.0
        assert found.certificate.basis == min(matrix.shape)


def test_the_same_matrix_gives_the_same_bits() -> None:
    matrix = noisy(400, 300, 6, 1.0, seed=5)
    first, second = truncated_svd(matrix, 4), truncated_svd(matrix, 4)
    assert torch.equal(first.u, second.u)
    assert torch.equal(first.vh, second.vh)


def test_a_float32_matrix_is_summed_in_float64() -> None:
    matrix = noisy(400, 300, 6, 1.0, seed=6).to(torch.float32)
    found = truncated_svd(matrix, 4)
    torch.testing.assert_close(found.s, optimum(matrix.double(), 4)[0], rtol=1e-4, atol=0)
    assert found.u.dtype == torch.float64


def test_the_norm_factor_falls_with_every_block_and_holds_in_experiment() -> None:
    factors = [norm_factor(degree, 16, 4096, 1e-9) for degree in range(10)]
    assert factors == sorted(factors, reverse=True)
    assert 1.0 < factors[-1] < 1.4
    # A space of degree 0 from 16 vectors in dimension 200, 200 draws: the largest eigenvalue stays below the bound.
    diagonal = torch.ones(200, dtype=torch.float64)
    diagonal[0] = 4.0
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        start = torch.randn(16, 200, generator=generator, dtype=torch.float64) * diagonal.sqrt()
        basis = orthonormal(start, [])
        ritz = float(torch.linalg.eigvalsh((basis * diagonal) @ basis.T)[-1])
        assert ritz <= 4.0 + 1e-12
        assert ritz * norm_factor(0, 16, 200, 1e-9) >= 4.0


def test_orthonormal_rows_stay_orthogonal_to_the_bases_when_rank_is_lost() -> None:
    base = orthonormal(noisy(4, 50, 4, 0.1, seed=7), [])
    rows = torch.cat([base[:2], noisy(1, 50, 1, 0.0, seed=8).repeat(2, 1)])
    block = orthonormal(rows, [base])
    torch.testing.assert_close(block @ block.T, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-12)
    assert float((block @ base.T).abs().max()) < 1e-9


def test_a_direction_that_the_start_cannot_see_is_never_certified_away() -> None:
    """The search begins at ``G M`` with a seeded G: what lies across all rows of G is found by the probe alone."""
    rank, rows, columns = 4, 400, 300
    start = gaussian(rank + 16, rows, torch.device("cpu"), krylov._SEED)
    q = torch.linalg.qr(torch.cat([start, noisy(rows, rows, rows, 1.0, seed=9)]).T[:, :rows]).Q
    # The first left singular vector, and it alone, is orthogonal to the start.
    left = torch.cat([q[:, -1:], q[:, : columns - 1]], dim=1)
    right = torch.linalg.qr(noisy(columns, columns, columns, 1.0, seed=10)).Q
    values = torch.cat([torch.tensor([2.2, 2.0, 1.9, 1.8, 1.7]), torch.linspace(1.0, 0.1, columns - 5)]).double()
    found = truncated_svd((left * values) @ right.T, rank)
    torch.testing.assert_close(found.s, values[:rank], rtol=1e-5, atol=0)
    assert found.certificate.excess <= TOLERANCE * float(values[rank:].square().sum())
