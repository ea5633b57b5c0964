"""Six training states behind one phrase, and the record that keeps them apart (R 0x03E, 0x03I, 0x00F.3)."""

from collections.abc import Iterator
from typing import Literal

from oracles.checks import Check, equal
from oracles.model import Fixture
from oracles.routed.identities import identify

STATES, RECORD = "R 0x03E", "R 0x03I"

State = Literal["loramoe_paper", "loramoe_pinned", "mixture_stage1", "mixture_stage2", "mole_paper", "mole_pinned"]


class TrainingState(Fixture):
    """One row of the table: what it starts from, what moves, which privileged signal it sees, whose moments it has."""

    state: State
    parent: Literal["pretrained_base", "same_base_each_domain", "ordered_stage1_pool", "trained_adapter_pool"]
    trainable: Literal["experts_and_routers", "one_adapter", "adapters_and_routers", "gate_and_tau", "named_wg"]
    signal: Literal[
        "roles_in_balance",
        "task_types_in_local_terms",
        "domain_data",
        "domain_labels",
        "gate_balance",
        "detached_statistic",
    ]
    optimizer: Literal["joint", "new_each_run", "new_or_restored", "gate_only", "revision_specific"]


class TrainingRecord(Fixture):
    """What a stage-2 artifact must say; a label role, a router input and an inference label are separate fields."""

    parameters: tuple[str, ...]
    trainable: tuple[str, ...]
    frozen: tuple[str, ...]
    adapters: tuple[str, ...]
    router_scope: Literal["sequence_by_layer", "token"]
    objective: Literal["nll_plus_eta_classification", "nll"]
    reduction_axes: tuple[Literal["batch", "layer", "token"], ...]
    label_schema: Literal["domain_index", "sample_role"]
    label_role: Literal["loss_target", "router_input"]
    label_phase: Literal["training", "training_and_inference"]
    router_input: Literal["sequence_representation", "domain_label"]
    inference_label: Literal["absent", "present"]
    stage_parent: Literal["ordered_stage1_pool", "pretrained_base"]
    optimizer_restore: Literal["not_restored", "moments_cross_the_stage"]
    selection: Literal["router_vote", "last_router"]
    tie_break: Literal["lowest_index", "highest_index"]


def moves(state: State, name: str) -> bool:
    """Whether a parameter of that name is trainable in a state; stage 1 runs its first domain."""
    if state == "mole_pinned":
        return "wg" in name
    prefixes = {
        "mixture_stage1": ("adapter_0.",),
        "mole_paper": ("gate.",),
    }.get(state, ("adapter_", "router_"))
    return name.startswith(prefixes)


def state_checks(states: tuple[TrainingState, ...], record: TrainingRecord) -> Iterator[Check]:
    """The table, the trainable names it implies, and where a label may stand."""
    rows = tuple((s.state, s.parent, s.trainable, s.signal, s.optimizer) for s in states)
    yield equal("six training states", rows, TABLE, source=STATES)
    yield equal("parameter names", record.parameters, PARAMETERS, source=RECORD)
    for state in states:
        names = tuple(name for name in record.parameters if moves(state.state, name))
        yield equal(f"{state.state} trains", names, TRAINS[state.state], source=STATES)
    yield equal("trainable names of stage 2", record.trainable, TRAINS["mixture_stage2"], source=RECORD)
    rest = tuple(name for name in record.parameters if name not in record.trainable)
    yield equal("frozen names of stage 2", record.frozen, rest, source=RECORD)
    yield from record_checks(record)


def record_checks(record: TrainingRecord) -> Iterator[Check]:
    """The fields the document says a stage-2 artifact must carry."""
    yield equal("ordered adapters", record.adapters, ("adapter_0", "adapter_1", "adapter_2"), source=RECORD)
    pool = identify("oracle_adapter_pool", {"adapters": list(record.adapters)})
    reordered = identify("oracle_adapter_pool", {"adapters": list(record.adapters[::-1])})
    yield equal("another order is another pool", pool != reordered, True, source=STATES)
    objective = (record.objective, *record.reduction_axes)
    yield equal(
        "objective and reduction axes", objective, ("nll_plus_eta_classification", "batch", "layer"), source=RECORD
    )
    label = (record.label_schema, record.label_role, record.label_phase, record.router_input, record.inference_label)
    yield equal("label, router input and inference label", label, LABEL, source="R 0x00F.3")
    parent = (record.stage_parent, record.optimizer_restore)
    yield equal("stage parent proves no moments", parent, ("ordered_stage1_pool", "not_restored"), source=STATES)
    selection = (record.router_scope, record.selection, record.tie_break)
    yield equal("selection policy", selection, ("sequence_by_layer", "router_vote", "lowest_index"), source=RECORD)


TABLE = (
    ("loramoe_paper", "pretrained_base", "experts_and_routers", "roles_in_balance", "joint"),
    ("loramoe_pinned", "pretrained_base", "experts_and_routers", "task_types_in_local_terms", "joint"),
    ("mixture_stage1", "same_base_each_domain", "one_adapter", "domain_data", "new_each_run"),
    ("mixture_stage2", "ordered_stage1_pool", "adapters_and_routers", "domain_labels", "new_or_restored"),
    ("mole_paper", "trained_adapter_pool", "gate_and_tau", "gate_balance", "gate_only"),
    ("mole_pinned", "trained_adapter_pool", "named_wg", "detached_statistic", "revision_specific"),
)
LABEL = ("domain_index", "loss_target", "training", "sequence_representation", "absent")
_ADAPTERS = ("adapter_0.A", "adapter_0.B", "adapter_1.A", "adapter_1.B", "adapter_2.A", "adapter_2.B")
PARAMETERS = ("base.weight", *_ADAPTERS, "router_0.weight", "router_1.weight", "gate.wg.weight", "gate.tau")
_ROUTED = (*_ADAPTERS, "router_0.weight", "router_1.weight")
TRAINS: dict[State, tuple[str, ...]] = {
    "loramoe_paper": _ROUTED,
    "loramoe_pinned": _ROUTED,
    "mixture_stage1": _ADAPTERS[:2],
    "mixture_stage2": _ROUTED,
    "mole_paper": ("gate.wg.weight", "gate.tau"),
    "mole_pinned": ("gate.wg.weight",),
}
