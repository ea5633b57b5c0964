"""Oracles of routed, shared and continual adapters (R)."""

from collections.abc import Mapping
from typing import Final

ORACLES: Final[Mapping[str, str]] = {
    "adapter_identity": "oracles.routed.adapter_identity",
    "routed_operator": "oracles.routed.routed_operator",
    "method_training": "oracles.routed.method_training",
    "shared_factor": "oracles.routed.shared_factor",
    "composition_merge": "oracles.routed.composition_merge",
    "continual_state": "oracles.routed.continual_state",
    "routing_granularity": "oracles.routed.routing_granularity",
    "runtime_execution": "oracles.routed.runtime_execution",
    "cross_contract": "oracles.routed.cross_contract",
    "evaluation_publication": "oracles.routed.evaluation_publication",
}
