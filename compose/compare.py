"""How far apart two stored low-rank deltas are."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, sqrt

import torch
from torch import Tensor

from compose.experts import pairs
from compose.lowrank import difference_norm, product_norm
from compose.request import FactorSource
from compose.tensors import map_tensor


def relative_difference(left: FactorSource, right: FactorSource) -> float:
    """``||s B A - s' B' A'||_F / ||s B A||_F`` in float64, without a dense matrix; infinite where only right moves.

    Stacked experts are compared one by one; other numbers of them are infinitely far apart.
    """
    if left.experts != right.experts:
        return inf
    difference = norm = 0.0
    for (a, b), (other_a, other_b) in zip(_pairs(left), _pairs(right), strict=True):
        difference += difference_norm(b, a, other_b, other_a) ** 2
        norm += product_norm(b, a) ** 2
    return sqrt(difference / norm) if norm > 0 else (inf if difference > 0 else 0.0)


def _pairs(source: FactorSource) -> Iterator[tuple[Tensor, Tensor]]:
    a, b = map_tensor(source.a).to(torch.float64), source.scale * map_tensor(source.b).to(torch.float64)
    return iter([(a, b)]) if source.experts is None else pairs(a, b, source.experts)
