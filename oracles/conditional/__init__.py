"""Oracles of conditional compute (C)."""

from collections.abc import Mapping
from typing import Final

ORACLES: Final[Mapping[str, str]] = {
    "moa": "oracles.conditional.moa",
}
