"""What a launch may rely on: leases, generations, and the conditions for reusing one A (R 0x08C, 0x08G)."""

from collections.abc import Iterator, Sequence
from typing import Literal

from oracles.checks import Check, equal
from oracles.model import Fixture

SHARED, LEASES = "R 0x08C", "R 0x08G"


class Branch(Fixture):
    """What one selected branch feeds its input factor with, and what stands behind it."""

    storage: str
    version: int
    orientation: Literal["rank_by_input", "input_by_rank"]
    input_row: Literal["layer_input", "routed_input"]
    dropout_mask: Literal["identity", "own"]
    rank: int
    scale_placement: Literal["coefficient", "in_A", "in_B"]
    between: Literal["nothing", "nonlinearity"]


class Resident(Fixture):
    """One adapter in its slot."""

    version: str
    slot_generation: int
    pointer_generation: int
    resident: bool


class Snapshot(Fixture):
    """The state a plan was built from, or the state a lease holds."""

    base: str
    router: str
    catalog_generation: int
    plan_generation: int
    adapters: tuple[Resident, Resident, Resident]


_SCALARS = ("base", "router", "catalog_generation", "plan_generation")


def reusable(branches: Sequence[Branch]) -> bool:
    """One storage and version, orientation, input row, mask, rank and scale placement; nothing nonlinear between."""
    return len(set(branches)) == 1 and branches[0].between == "nothing" and branches[0].dropout_mask != "own"


def stale(launch: Snapshot, lease: Snapshot) -> tuple[str, ...]:
    """Every part of the launch that its lease does not hold."""
    parts = [name for name in _SCALARS if getattr(launch, name) != getattr(lease, name)]
    for i, (used, held) in enumerate(zip(launch.adapters, lease.adapters, strict=True)):
        found = [name for name in Resident.model_fields if getattr(used, name) != getattr(held, name)]
        parts += [f"adapters[{i}].{name}" for name in found]
        parts += [] if used.resident else [f"adapters[{i}] is not resident"]
    return tuple(parts)


def reuse_checks(branches: tuple[Branch, ...]) -> Iterator[Check]:
    """The preconditions hold together, and each one alone can break them."""
    yield equal("one A serves every branch", reusable(branches), True, source=SHARED)
    changes: dict[str, object] = {
        "storage": "another-storage",
        "version": branches[0].version + 1,
        "orientation": "input_by_rank",
        "input_row": "routed_input",
        "dropout_mask": "own",
        "rank": branches[0].rank + 1,
        "scale_placement": "in_A",
        "between": "nonlinearity",
    }
    broken = tuple(
        name
        for name, value in changes.items()
        if not reusable((branches[0].model_copy(update={name: value}), *branches[1:]))
    )
    yield equal("preconditions of reuse", broken, tuple(Branch.model_fields), source=SHARED)
    first = branches[0]
    yield equal(
        "owner of A", (first.storage, first.version, first.rank), ("shared-A-storage-r17", 17, 2), source=SHARED
    )


def launch_checks(launch: Snapshot, lease: Snapshot) -> Iterator[Check]:
    """The launch dereferences exactly what its lease holds; a republished slot or pointer is seen."""
    yield equal("parts of the launch outside its lease", stale(launch, lease), (), source=LEASES)
    second = launch.adapters[1]
    for name in ("slot_generation", "pointer_generation"):
        newer = second.model_copy(update={name: getattr(second, name) + 1})
        moved = launch.model_copy(update={"adapters": (launch.adapters[0], newer, launch.adapters[2])})
        yield equal(f"a republished {name}", stale(moved, lease), (f"adapters[1].{name}",), source=LEASES)
