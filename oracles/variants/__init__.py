"""Oracles of the low-rank design space (V)."""

from collections.abc import Mapping
from typing import Final

ORACLES: Final[Mapping[str, str]] = {
    "nf4": "oracles.variants.nf4",
    "adalora": "oracles.variants.adalora",
    "rslora": "oracles.variants.rslora",
    "lora_plus": "oracles.variants.lora_plus",
    "lora_fa": "oracles.variants.lora_fa",
    "pissa": "oracles.variants.pissa",
    "loftq": "oracles.variants.loftq",
    "dora": "oracles.variants.dora",
    "variant_stacks": "oracles.variants.variant_stacks",
    "variant_lifecycle": "oracles.variants.variant_lifecycle",
}
