"""The exact sum as a dense matrix, for a dense release only (R 0x05A)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from compose.fields import tiling
from compose.lowrank import stack
from compose.module import ModuleInput
from compose.tensors import work_dtype


def dense_sum(module: ModuleInput) -> Iterator[tuple[slice, Tensor]]:
    """``D = sum_i c_i B_i A_i`` by row tiles in the work dtype, ready to be added to a base weight and rounded once."""
    stacks, work = stack(module.factors), work_dtype(module.choices.dtype)
    weighted, a = (stacks.b * stacks.c).to(work), stacks.a.to(work)
    grid = tiling(*module.shape)
    for number in range(grid.count):
        rows = grid.span(number)
        yield rows, weighted[rows] @ a
