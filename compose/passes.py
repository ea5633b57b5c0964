"""Products with a dense matrix in few passes over it, and orthonormal rows. Vectors are rows."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from compose.shapes import Dense, Matrix

_PASS: Final = 1 << 18
"""Elements of M in work at once: both products find them in the cache, and so does a copy in another dtype."""


def through(matrix: Dense, block: Matrix, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``block @ M^T`` and ``block @ M^T @ M`` in one pass over M; products in `dtype`, results in float64."""
    narrow = block.to(dtype)
    image = torch.empty(block.shape[0], matrix.shape[0], dtype=dtype, device=matrix.device)
    again = torch.zeros(block.shape[0], matrix.shape[1], dtype=dtype, device=matrix.device)
    for rows in row_tiles(matrix):
        tile = matrix[rows].to(dtype)
        part = narrow @ tile.T
        image[:, rows] = part
        again.addmm_(part, tile)
    return image.to(torch.float64), again.to(torch.float64)


def across(block: Matrix, matrix: Dense, dtype: torch.dtype) -> Tensor:
    """``block @ M``; products in `dtype`, the result in float64."""
    narrow = block.to(dtype)
    out = torch.zeros(block.shape[0], matrix.shape[1], dtype=dtype, device=matrix.device)
    for rows in row_tiles(matrix):
        out.addmm_(narrow[:, rows], matrix[rows].to(dtype))
    return out.to(torch.float64)


def row_tiles(matrix: Dense) -> list[slice]:
    """Row ranges of a pass."""
    height = max(1, _PASS // matrix.shape[1])
    return [slice(start, min(start + height, matrix.shape[0])) for start in range(0, matrix.shape[0], height)]


def outside(rows: Matrix, bases: list[Tensor]) -> Tensor:
    """What of the rows lies outside the row spaces of orthonormal bases; twice is enough against cancellation."""
    for _ in range(2):
        for basis in bases:
            rows = rows - (rows @ basis.T) @ basis
    return rows


def orthonormal(rows: Matrix, bases: list[Tensor]) -> Tensor:
    """Orthonormal rows with the span of `rows`, orthogonal to the bases also where `rows` has lost rank."""
    block = torch.linalg.qr(rows.T).Q.T
    clean: Tensor = torch.linalg.qr(outside(block, bases).T).Q.T
    return clean.contiguous()


def svd_of_rows(rows: Matrix) -> tuple[Tensor, Tensor, Tensor]:
    """SVD of a short, wide matrix through the QR of its transpose."""
    q, r = torch.linalg.qr(rows.T)
    u, s, vh = torch.linalg.svd(r.T)
    return u, s, vh @ q.T


def gaussian(count: int, length: int, device: torch.device, seed: int) -> Tensor:
    """Standard normal rows, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, length, generator=generator, dtype=torch.float64).to(device)
