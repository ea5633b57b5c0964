"""The operators, each a function of one module. A name and a space choose one (R 0x05A)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from compose.module import ModuleInput, ModuleOutput
from compose.operators.cat import cat
from schemas.methods import Method, Space

Operator = Callable[[ModuleInput], ModuleOutput]

OPERATORS: Final[Mapping[tuple[Method, Space], Operator]] = {
    ("cat", "delta"): cat,
}
