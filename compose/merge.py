"""Coordinatewise merges of several fields: the weighted sum, and the TIES election with its disjoint reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from compose.fields import Field, energy
from compose.shapes import Matrix
from schemas.methods import TiesChoices

SMALLEST_DIVISOR: Final = 1e-8
"""A sum of aligned weights below it does not divide, as in mergekit: opposite weights may cancel."""


@dataclass(frozen=True)
class Merged:
    """The merged values; per field how many were not zero and, if asked, the squared norm; counts of TIES conflicts."""

    values: Matrix
    retained: list[int]
    energies: list[float]
    conflict: tuple[int, int] | None


def merge(
    fields: Sequence[Field], weights: Sequence[float], ties: TiesChoices | None, *, energies: bool = False
) -> Merged:
    """Merge tile by tile: ``sum_i w_i x_i``, or with `ties` the elected and reduced values."""
    grid = fields[0].tiling
    retained, squares = [0] * len(fields), [0.0] * len(fields)
    conflicts = covered = 0
    values = fields[0].tile(0).new_empty(grid.rows, grid.columns)
    for number in range(grid.count):
        tiles = [each.tile(number) for each in fields]
        for index, tile in enumerate(tiles):
            retained[index] += count_nonzero(tile)
            squares[index] += energy(tile) if energies else 0.0
        out = values[grid.span(number)]
        if ties is None:
            weighted_sum(tiles, weights, out)
        else:
            pair = elect_and_reduce(tiles, weights, ties, out)
            conflicts, covered = conflicts + pair[0], covered + pair[1]
    return Merged(values, retained, squares, None if ties is None else (conflicts, covered))


def weighted_sum(tiles: Sequence[Tensor], weights: Sequence[float], out: Matrix) -> None:
    """``sum_i w_i x_i`` into `out`, in member order; products are rounded apart, so fused hardware changes nothing."""
    torch.mul(tiles[0], weights[0], out=out)
    for tile, weight in zip(tiles[1:], weights[1:], strict=True):
        out.add_(tile * weight)


def elect_and_reduce(
    tiles: Sequence[Tensor], weights: Sequence[float], choices: TiesChoices, out: Matrix
) -> tuple[int, int]:
    """TIES steps 2 and 3 on trimmed values (R 0x05E), into `out`.

    The sign of a coordinate is elected on the unweighted or weighted values; a member is aligned where its own such
    value has that sign. The reduce runs over the weighted values of aligned members, those of weight 0 left out.
    Signs and alignments stay floats: -1, 0 and 1 are exact, and mixing in booleans costs several times more.

    Returns:
        Coordinates where kept values have both signs, and coordinates where any value is kept.
    """
    votes = (
        [tile * weight for tile, weight in zip(tiles, weights, strict=True)] if choices.values == "weighted" else tiles
    )
    signs = [vote.sign() for vote in votes]
    balance, present = _sum(signs), _sum([sign.abs() for sign in signs])
    elected = (_sum(votes) if choices.elect == "total" else balance).sign()
    if choices.zero_sum == "plus":
        elected += 1.0 - elected.abs()
    covered, conflicts = count_nonzero(present), count_nonzero(present.sub_(balance.abs_()))
    _reduce(tiles, weights, [sign.mul_(elected).clamp_(min=0.0) for sign in signs], choices, out)
    return conflicts, covered


def _sum(terms: Sequence[Tensor]) -> Tensor:
    """The sum in member order."""
    total = terms[0].clone()
    for term in terms[1:]:
        total += term
    return total


def _reduce(
    tiles: Sequence[Tensor], weights: Sequence[float], aligned: Sequence[Tensor], choices: TiesChoices, out: Matrix
) -> None:
    """The sum of aligned weighted values, divided by their count, by their weights or not; `aligned` is 0 or 1."""
    out.zero_()
    divisor = torch.zeros_like(out)
    for tile, weight, one in zip(tiles, weights, aligned, strict=True):
        if weight:
            out += (tile * weight).mul_(one)
            divisor += one if choices.reduce == "count" else one.mul_(weight)
    if choices.reduce == "count":
        out.div_(divisor.clamp_(min=1.0))
    elif choices.reduce == "weight_sum":
        out.div_(torch.where(divisor.abs() < SMALLEST_DIVISOR, 1.0, divisor))


def count_nonzero(values: Matrix) -> int:
    """How many values are not zero: a sum of signs is faster than torch's own count, and exact along a row."""
    return int(values.sign().abs_().sum(dim=1).sum(dtype=torch.float64))
