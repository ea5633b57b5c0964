"""Sum of the factors, not of the deltas (R 0x05D)."""

from __future__ import annotations

from collections.abc import Sequence

from compose.fields import Field
from compose.masks import MaskRole
from compose.module import ModuleInput, ModuleOutput
from compose.operators.factorwise import combine
from compose.operators.refactor import Prepared


def factor_linear(module: ModuleInput) -> ModuleOutput:
    """``A = sum sign(c_i) sqrt|c_i| A_i``, ``B = sum sqrt|c_i| B_i``."""
    return combine(module, _as_they_are)


def _as_they_are(_module: ModuleInput, fields: Sequence[Field], _role: MaskRole) -> Prepared:
    return Prepared(fields)
