"""A decision over 64 members on a base of 224 modules, manifests already in memory: target 150 ms."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter

from tests.validators.examples import make_adapter, make_base, make_spec, weight_map
from validators import decide

MEMBERS = 64
TARGET_MS = 150.0
SHAPES = {
    f"model.layers.{layer}.{name}": (4096, 4096)
    for layer in range(32)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
}


def run() -> Iterator[str]:
    """One line: the median of nine decisions."""
    base = make_base(weight_map(SHAPES))
    adapters = [
        make_adapter(base, str(index), shapes=SHAPES, factor={"rank": 8 + index % 2}) for index in range(MEMBERS)
    ]
    spec = make_spec(base, *adapters)
    manifests = dict(zip((adapter.digest for adapter in adapters), adapters, strict=True))
    seconds = []
    for _ in range(9):
        start = perf_counter()
        decision = decide(spec, base, manifests, {spec.base: base})
        seconds.append(perf_counter() - start)
    yield (
        f"decide: {MEMBERS} members x {len(SHAPES)} modules, {decision.outcome}: "
        f"{median(seconds) * 1000:.1f} ms (target {TARGET_MS:.0f} ms)"
    )


if __name__ == "__main__":
    print("\n".join(run()))
