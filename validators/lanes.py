"""What each lane owns, as far as a spec can carry it (R 0x09C; docs/concepts.md, "Lanes").

Execution (E) and cache (K) belong to a published generation and its leases, so no spec owns them.
"""

from __future__ import annotations

from typing import Final

from schemas.decision import Component
from schemas.methods import Lane

_FACTORS: Final[frozenset[Component]] = frozenset({"B", "M", "T", "F"})
_FUSED: Final[frozenset[Component]] = _FACTORS | {"C"}
_HISTORY: Final[frozenset[Component]] = _FUSED | {"S"}
_ROUTED: Final[frozenset[Component]] = _FUSED | {"R"}

OWNED: Final[dict[Lane, frozenset[Component]]] = {
    "independent": _FACTORS,
    "static_fusion": _FUSED,
    "shared_a_selected": _ROUTED,
    "shared_a_dense": _ROUTED,
    "olora_ordered": _HISTORY,
    "amlora_selector": _HISTORY | _ROUTED,
    "joint_routed": _ROUTED,
    "staged_routed": _ROUTED,
    "posthoc_routed": _ROUTED,
    "pregated_fused": _ROUTED,
    "task_composed": _FUSED,
    "instance_factors": _ROUTED,
}
"""The components a lane must answer for; the others are `none`."""


def is_dynamic(lane: Lane) -> bool:
    """Whether the lane's effective operator depends on the input, so that no one matrix stands for it (R 0x05G)."""
    return "R" in OWNED[lane]
