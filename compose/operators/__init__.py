"""The operators, each a function of one module. A method and its space choose one (R 0x05A)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from compose.module import ModuleInput, ModuleOutput
from compose.operators.cat import cat
from compose.operators.dare import dare_linear_delta, dare_linear_factor, dare_ties_delta, dare_ties_factor
from compose.operators.delta_svd import delta_svd
from compose.operators.factor_linear import factor_linear
from compose.operators.magnitude_prune import magnitude_prune_delta, magnitude_prune_factor
from compose.operators.ties import ties_delta, ties_factor
from schemas.methods import Method, Space

Operator = Callable[[ModuleInput], ModuleOutput]

OPERATORS: Final[Mapping[tuple[Method, Space], Operator]] = {
    ("cat", "delta"): cat,
    ("delta_svd", "delta"): delta_svd,
    ("ties", "delta"): ties_delta,
    ("ties", "factor"): ties_factor,
    ("dare_linear", "delta"): dare_linear_delta,
    ("dare_linear", "factor"): dare_linear_factor,
    ("dare_ties", "delta"): dare_ties_delta,
    ("dare_ties", "factor"): dare_ties_factor,
    ("factor_linear", "factor"): factor_linear,
    ("magnitude_prune", "delta"): magnitude_prune_delta,
    ("magnitude_prune", "factor"): magnitude_prune_factor,
}
"""`dense_sum` is missing on purpose: its output is not an adapter."""
