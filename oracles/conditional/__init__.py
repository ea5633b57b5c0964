"""Oracles of conditional compute (C)."""

from collections.abc import Mapping
from typing import Final

ORACLES: Final[Mapping[str, str]] = {
    "moa": "oracles.conditional.moa",
    "switchhead": "oracles.conditional.switchhead",
    "mod_training": "oracles.conditional.mod_training",
    "mod_causal": "oracles.conditional.mod_causal",
    "mod_sparse_kv": "oracles.conditional.mod_sparse_kv",
    "mode_composition": "oracles.conditional.mode_composition",
    "multimodal_stage": "oracles.conditional.multimodal_stage",
    "family_contracts": "oracles.conditional.family_contracts",
    "sensitivity": "oracles.conditional.sensitivity",
}
