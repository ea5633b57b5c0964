"""A legal router for every lane that has one: what it reads, how long its choice lives, whose factors it weighs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schemas.canonical import JsonObject, JsonValue
from schemas.methods import Lane
from schemas.model import validate
from schemas.router import Extents
from tests.routed.documents import REQUEST, TOP_K, router, tensor

MATRICES: Final[JsonObject] = {"positions": "every", "layers": 2, "matrices": 2}
LAYERS: Final[JsonObject] = {"positions": "one", "layers": 2, "matrices": 1}
BEST: Final[JsonObject] = {**TOP_K, "selection": {"rule": "top_k", "k": 1, "ties": "candidate_order"}}

ROUTES: Final[Mapping[Lane, JsonObject]] = {
    "shared_a_selected": {"topology": "shared_a", "extents": MATRICES, **TOP_K},
    "shared_a_dense": {"topology": "shared_a", "extents": MATRICES, "family": "hydralora"},
    "amlora_selector": {"family": "amlora", "extents": MATRICES, "no_op_ids": [0], "feature_source": "branch_output"},
    "joint_routed": {"family": "loramoe", "extents": MATRICES},
    "staged_routed": {
        **REQUEST,
        **BEST,
        "family": "mixture_of_loras",
        "extents": LAYERS,
        "lifetime": "sequence",
        "feature_source": "sequence_hidden",
        "population": "valid_rows",
        "label_role": "target",
        "votes": "last_router",
    },
    "posthoc_routed": {"family": "xlora", "extents": MATRICES, "feature_source": "prior_pass"},
    "pregated_fused": {**TOP_K, "family": "lora_switch", "feature_source": "preceding_layer"},
    "task_composed": {
        "family": "lorahub",
        "extents": {"positions": "one", "layers": 1, "matrices": 1},
        "lifetime": "task",
        "persistence": "task_artifact",
        "gates": {"activation": "raw", "normalization": "none", "gradient": "none", "dtype": "float32"},
        "feature_source": "task_examples",
    },
    "instance_factors": {
        **TOP_K,
        "family": "conditional_mixlora",
        "topology": "rank_one",
        "extents": LAYERS,
        "lifetime": "instance",
        "persistence": "recomputed",
        "feature_source": "preceding_layer",
        "pooling": "mean",
        "mask": "valid_rows",
    },
}
"""R 0x04 for a shared A, 0x06H for the selector, 0x08I for pre-gating, 0x03 and 0x07 for the others."""


def rows(lane: Lane, pool: int) -> int:
    """How many gate rows a lane's router over so many candidates has."""
    document: dict[str, Any] = ROUTES[lane]
    paths = len(document.get("no_op_ids", ()))
    return validate(Extents, document.get("extents", {"positions": "every", "layers": 1, "matrices": 1})).entries(
        pool + paths
    )


def lane_router(lane: Lane, base: str, pool: list[JsonValue], **changes: JsonValue) -> JsonObject:
    """The lane's router over a pool; all its gate rows in one tensor, unless `tensors` says otherwise."""
    held: JsonObject = {"gate.weight": {"role": "gate", "value": tensor("gate", rows(lane, len(pool)), 6)}}
    return router(base, pool, **{"tensors": held, **ROUTES[lane], **changes})
