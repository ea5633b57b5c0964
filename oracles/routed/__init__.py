"""Oracles of routed, shared and continual adapters (R)."""

from collections.abc import Mapping
from typing import Final

ORACLES: Final[Mapping[str, str]] = {
    "composition_merge": "oracles.routed.composition_merge",
}
