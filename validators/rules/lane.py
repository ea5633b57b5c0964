"""The lane: whether a static composition is legal in it, and what it needs beside (R 0x05G, 0x09C)."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.decision import Finding
from validators.context import Context, finding
from validators.lanes import OWNED, is_dynamic


def composable(context: Context) -> Iterator[Finding]:
    """Of all lanes, `static_fusion` has one fixed child delta today."""
    lane = context.spec.lane
    if lane == "static_fusion":
        return
    if lane == "independent":
        code = "LANE_NOT_COMPOSABLE"
    elif is_dynamic(lane):
        code = "DYNAMIC_PACKAGED_STATIC"
    else:
        code = "LANE_NOT_SUPPORTED"
    yield finding(code, "spec", ("lane",), "static_fusion", lane)


def state(context: Context) -> Iterator[Finding]:
    """A lane with a history or a router is nothing without it, and a spec of adapters names neither."""
    owned = OWNED[context.spec.lane]
    if "S" in owned:
        yield finding("HISTORY_MISSING", "spec", ("lane",), "a continual state", "none")
    if "R" in owned:
        yield finding("ROUTER_MISSING", "spec", ("lane",), "a router", "none")
