"""How far apart two stored low-rank deltas are."""

from __future__ import annotations

from math import inf

import torch

from compose.lowrank import difference_norm, product_norm
from compose.request import FactorSource
from compose.tensors import map_tensor


def relative_difference(left: FactorSource, right: FactorSource) -> float:
    """``||s B A - s' B' A'||_F / ||s B A||_F`` in float64, without a dense matrix; infinite where only right moves."""
    a, b = map_tensor(left.a).to(torch.float64), left.scale * map_tensor(left.b).to(torch.float64)
    other_a, other_b = map_tensor(right.a).to(torch.float64), right.scale * map_tensor(right.b).to(torch.float64)
    difference, norm = difference_norm(b, a, other_b, other_a), product_norm(b, a)
    return difference / norm if norm > 0 else (inf if difference > 0 else 0.0)
