"""Whether an ordered history holds together: predicate S, and what of B and T a state carries (R 0x06)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from schemas.adapter import AdapterManifest
from schemas.continual import ContinualStateManifest
from schemas.decision import Finding
from schemas.digests import Digest
from schemas.errors import Path
from schemas.router import RouterManifest
from validators.context import finding


def judge_state(
    state: ContinualStateManifest,
    adapters: Mapping[Digest, AdapterManifest],
    parents: Sequence[ContinualStateManifest],
    selector: RouterManifest | None,
) -> Iterator[Finding]:
    """Everything wrong with a state over its tasks' adapters, its parents in order, and its selector."""
    for position, task in enumerate(state.tasks):
        if adapters[task.adapter].base != state.base:
            yield _found("TASK_BASE_DIFFERS", ("tasks", position), state.base, adapters[task.adapter].base)
    yield from _parents(state, parents)
    yield from _selector(state, selector)
    yield from _pairs(state, adapters)
    yield from _scales(state, adapters)
    yield from _orthogonality(state, adapters)
    yield from _sets(state)
    if state.evaluation != "not_verified" and len(state.evaluation.scores) != len(state.tasks):
        path, tasks = ("evaluation", "scores"), len(state.tasks)
        yield _found("MATRIX_OF_OTHER_TASKS", path, f"{tasks} tasks", f"{len(state.evaluation.scores)}")


def capacity(state: ContinualStateManifest, adapters: Mapping[Digest, AdapterManifest]) -> dict[str, tuple[int, int]]:
    """Module -> (``sum r_t``, d): the row spaces of all tasks together, in a space of d input features (R 0x06G)."""
    ranks: defaultdict[str, int] = defaultdict(int)
    width: dict[str, int] = {}
    for task in state.tasks:
        for factor in adapters[task.adapter].factors:
            ranks[factor.module] += factor.rank
            width[factor.module] = factor.a.shape[1]
    return {module: (ranks[module], width[module]) for module in sorted(ranks)}


def _parents(state: ContinualStateManifest, parents: Sequence[ContinualStateManifest]) -> Iterator[Finding]:
    """One state for each earlier task, in order, each itself complete (R 0x00F.4)."""
    if len(parents) != len(state.tasks) - 1:
        expected, observed = f"{len(state.tasks) - 1}, one for each earlier task", str(len(parents))
        yield _found("PARENTS_INCOMPLETE", ("parents",), expected, observed)
    for position, parent in enumerate(parents):
        path = ("parents", position)
        learned = state.tasks[: position + 1]
        if parent.tasks != learned:
            expected, observed = _names(parent), ", ".join(task.task for task in learned)
            yield _found("TASKS_REORDERED", path, expected, observed)
        if parent.parents != state.parents[:position] or parent.base != state.base:
            yield _found("PARENTS_INCOMPLETE", path, "the lineage of this state", "another lineage or base")
    if parents and parents[-1].consolidation.kind == "merged" and parents[-1].consolidation.basis == "discarded":
        path = ("parents", len(parents) - 1)
        yield _found("MERGED_PARENT_WITHOUT_BASIS", path, "factors or a kept basis", "merged, basis discarded")


def _selector(state: ContinualStateManifest, selector: RouterManifest | None) -> Iterator[Finding]:
    if state.lane == "olora_ordered":
        if selector is not None:
            yield _found("SELECTOR_FOREIGN", ("selector",), "none", state.selector)
        if state.concatenation == "separate_branches":
            expected = "scale_in_blocks or one_scale"
            yield _found("CONCATENATION_CONTRADICTS_LANE", ("concatenation",), expected, state.concatenation)
        return
    if state.concatenation != "separate_branches":
        yield _found("CONCATENATION_CONTRADICTS_LANE", ("concatenation",), "separate_branches", state.concatenation)
    if selector is None:
        yield _found("SELECTOR_MISSING", ("selector",), "a router over the tasks", "none")
    elif [entry.adapter for entry in selector.pool] != [task.adapter for task in state.tasks]:
        yield _found("SELECTOR_POOL_DIFFERS", ("selector",), "the tasks' adapters in order", "another pool")


def _pairs(state: ContinualStateManifest, adapters: Mapping[Digest, AdapterManifest]) -> Iterator[Finding]:
    """The code matches old and new factors by name; the map says so for every module, or it is no map (R 0x06E)."""
    *earlier, newest = state.tasks
    old = {factor.module for task in earlier for factor in adapters[task.adapter].factors}
    new = {factor.module for factor in adapters[newest.adapter].factors}
    for module in sorted(old ^ state.pair_map.keys()):
        expected, observed = ("a pair", "none") if module in old else ("no pair for a module nobody adapted", module)
        yield _found("PAIR_MAP_INCOMPLETE", ("pair_map", module), expected, observed)
    for module, continued in sorted(state.pair_map.items()):
        if continued not in new:
            yield _found("PAIR_MAP_INCOMPLETE", ("pair_map", module), "a module of the newest task", continued)


def _scales(state: ContinualStateManifest, adapters: Mapping[Digest, AdapterManifest]) -> Iterator[Finding]:
    """One forward scale over blocks of several is another sum (R 0x06F)."""
    if state.concatenation != "one_scale":
        return
    found: defaultdict[str, list[float]] = defaultdict(list)
    for task in state.tasks:
        for factor in adapters[task.adapter].factors:
            found[factor.module].append(factor.scale.value)
    for module, values in sorted(found.items()):
        if len(set(values)) > 1:
            path = ("concatenation", module)
            yield _found("SCALES_LOST_IN_CONCATENATION", path, "one scale", ", ".join(f"{value:g}" for value in values))


def _orthogonality(state: ContinualStateManifest, adapters: Mapping[Digest, AdapterManifest]) -> Iterator[Finding]:
    if state.orthogonality != "exact":
        return
    for module, (ranks, width) in capacity(state, adapters).items():
        if ranks > width:
            path = ("orthogonality", module)
            yield _found("ORTHOGONALITY_OVERCLAIMED", path, f"ranks of at most {width} together", str(ranks))


def _sets(state: ContinualStateManifest) -> Iterator[Finding]:
    for name in sorted(set(state.trainable) & set(state.frozen)):
        yield _found("TRAINABLE_AND_FROZEN", ("trainable", name), "one of the two", "both")
    *earlier, newest = (task.task for task in state.tasks)
    for task in earlier:
        if task not in state.frozen:
            yield _found("EARLIER_TASK_NOT_FROZEN", ("frozen",), task, "not frozen")
    if newest not in state.trainable:
        yield _found("EARLIER_TASK_NOT_FROZEN", ("trainable",), newest, "not trainable")


def _names(state: ContinualStateManifest) -> str:
    return ", ".join(task.task for task in state.tasks)


def _found(code: str, path: Path, expected: str, observed: str) -> Finding:
    return finding(code, "state", path, expected, observed)
