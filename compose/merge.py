"""Coordinatewise merges of several fields: the weighted sum, and the TIES election with its disjoint reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from compose.fields import Field
from compose.shapes import Matrix
from schemas.methods import TiesChoices

SMALLEST_DIVISOR: Final = 1e-8
"""A sum of aligned weights below it does not divide, as in mergekit: opposite weights may cancel."""


@dataclass(frozen=True)
class Merged:
    """The merged values; per field how many were not zero, and the squared norm; counts of TIES conflicts."""

    values: Matrix
    retained: list[int]
    energies: list[float]
    conflict: tuple[int, int] | None


def merge(fields: Sequence[Field], weights: Sequence[float], ties: TiesChoices | None) -> Merged:
    """Merge tile by tile: ``sum_i w_i x_i``, or with `ties` the elected and reduced values."""
    grid = fields[0].tiling
    retained, energies = [0] * len(fields), [0.0] * len(fields)
    conflicts = covered = 0
    values = fields[0].tile(0).new_empty(grid.rows, grid.columns)
    for number in range(grid.count):
        tiles = [each.tile(number) for each in fields]
        for index, tile in enumerate(tiles):
            retained[index] += int(torch.count_nonzero(tile))
            energies[index] += float(torch.linalg.vector_norm(tile, dtype=torch.float64)) ** 2
        out = values[grid.span(number)]
        if ties is None:
            weighted_sum(tiles, weights, out)
        else:
            pair = elect_and_reduce(tiles, weights, ties, out)
            conflicts, covered = conflicts + pair[0], covered + pair[1]
    return Merged(values, retained, energies, None if ties is None else (conflicts, covered))


def weighted_sum(tiles: Sequence[Tensor], weights: Sequence[float], out: Matrix) -> None:
    """``sum_i w_i x_i`` into `out`, in member order."""
    torch.mul(tiles[0], weights[0], out=out)
    for tile, weight in zip(tiles[1:], weights[1:], strict=True):
        out.add_(tile, alpha=weight)


def elect_and_reduce(
    tiles: Sequence[Tensor], weights: Sequence[float], choices: TiesChoices, out: Matrix
) -> tuple[int, int]:
    """TIES steps 2 and 3 on trimmed values (R 0x05E), into `out`.

    The sign of a coordinate is elected on the unweighted or weighted values; a member is aligned when its own such
    value has the elected sign. The reduce runs over the weighted values of aligned members that are not zero.

    Returns:
        Coordinates where kept values have both signs, and coordinates where any value is kept.
    """
    weighted = [tile * weight for tile, weight in zip(tiles, weights, strict=True)]
    votes = tiles if choices.values == "unweighted" else weighted
    signs = [vote.sign() for vote in votes]
    balance = torch.stack(signs).sum(dim=0)
    elected = _elected(votes, balance, choices)
    out.zero_()
    divisor = torch.zeros_like(out)
    for sign, value, weight in zip(signs, weighted, weights, strict=True):
        aligned = (sign == elected) & (value != 0)
        out.add_(value * aligned)
        if choices.reduce != "sum":
            divisor.add_(aligned, alpha=1.0 if choices.reduce == "count" else weight)
    if choices.reduce != "sum":
        out.div_(torch.where(divisor.abs() < SMALLEST_DIVISOR, 1.0, divisor))
    present = torch.stack([sign != 0 for sign in signs]).sum(dim=0)
    return int((balance.abs() < present).sum()), int((present > 0).sum())


def _elected(votes: Sequence[Tensor], balance: Tensor, choices: TiesChoices) -> Tensor:
    """The sign of the sum (`total`) or of the count (`frequency`), -1, 0 or 1; a zero sum elects by its own rule."""
    total = balance if choices.elect == "frequency" else _sum(votes)
    if choices.zero_sum == "zero":
        return total.sign()
    return torch.where(total >= 0, 1.0, -1.0).to(total.dtype)


def _sum(tiles: Sequence[Tensor]) -> Tensor:
    total = tiles[0].clone()
    for tile in tiles[1:]:
        total.add_(tile)
    return total
