"""Ordered continual state as an identity, its three ledgers, and the task-by-time matrix (R 0x06A, 0x06B, 0x06K)."""

from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Literal

from oracles.checks import Check, close, equal
from oracles.matrix import Matrix, Vector, require_length, require_shape
from oracles.model import Fixture, FixtureMatrix, FixtureVector
from oracles.routed.identities import identify
from schemas.canonical import JsonObject, JsonValue
from schemas.digests import Digest

ORDER, LIFECYCLE, CAT, MATRIX = "R 0x06A", "R 0x06B", "R 0x06F", "R 0x06K"


class Evaluation(Fixture):
    """R[i][j]: score on task j after learning through task i; the baseline of each task before training."""

    R: FixtureMatrix
    baseline: FixtureVector


class Task(Fixture):
    """One completed transition."""

    task: str
    adapter: str
    data: str


class History(Fixture):
    """The ordered state: base, transitions, selector, evaluation."""

    base: str
    tasks: tuple[Task, Task, Task]
    selector: str
    evaluation: str


Held = Literal["merged_delta", "task_basis", "exact_deltas", "immutable_parent"]


def transitions(history: History) -> tuple[Digest, ...]:
    """H_t over base, all parents in order, and the transition itself (R 0x00F.4)."""
    lineage: list[Digest] = []
    for task in history.tasks:
        parents: list[JsonValue] = [*lineage]
        record: JsonObject = {"base": history.base, "parents": parents, **task.model_dump()}
        lineage.append(identify("oracle_continual_task", record))
    return tuple(lineage)


def state_identity(history: History) -> Digest:
    """I_S over base, ordered transitions, selector and evaluation (R 0x09F)."""
    record: JsonObject = {
        "base": history.base,
        "transitions": [*transitions(history)],
        "selector": history.selector,
        "evaluation": history.evaluation,
    }
    return identify("oracle_continual_state", record)


def ledgers(held: tuple[Held, ...]) -> tuple[bool, bool, bool]:
    """Whether a release can serve, train the next task, and roll back: three ledgers, not one."""
    serves = "merged_delta" in held or "exact_deltas" in held
    trains = "task_basis" in held or "exact_deltas" in held
    return serves, trains, "immutable_parent" in held


def final_accuracy(R: Matrix) -> float:
    """ACC: mean of the last row."""
    return fmean(R[-1])


def backward_terms(R: Matrix) -> Vector:
    """R[T][j] - R[j][j] for every task before the last."""
    return tuple(R[-1][j] - R[j][j] for j in range(len(R) - 1))


def forward_terms(evaluation: Evaluation) -> Vector:
    """R[j - 1][j] - b[j] for every task after the first."""
    R, b = evaluation.R, evaluation.baseline
    return tuple(R[j - 1][j] - b[j] for j in range(1, len(R)))


def forgetting(R: Matrix) -> Vector:
    """Best score since a task was learned, minus its last score."""
    return tuple(max(R[i][j] for i in range(j, len(R))) - R[-1][j] for j in range(len(R) - 1))


def history_checks(history: History, releases: tuple[tuple[Held, ...], ...]) -> Iterator[Check]:
    """Order is identity, and serving, training on and rolling back need different state."""
    order = tuple(task.task for task in history.tasks)
    yield equal("task order", order, ("sentiment", "topic", "qa"), source=ORDER)
    named = tuple(f"{task.adapter} {task.data}" for task in history.tasks)
    yield equal("adapters and data", named, tuple(f"adapter-{t}-r1 data-{t}" for t in range(3)), source=ORDER)
    rest = (history.base, history.selector, history.evaluation)
    yield equal("base, selector, evaluation", rest, ("base-r1", "selector-r1", "evaluation-r1"), source=ORDER)
    reordered = history.model_copy(update={"tasks": history.tasks[::-1]})
    differs = state_identity(reordered) != state_identity(history)
    yield equal("a reorder is another state", differs, True, source=ORDER)
    changed = tuple(a != b for a, b in zip(transitions(history), transitions(_relabelled(history)), strict=True))
    yield equal("a changed task changes itself and its children", changed, (False, True, True), source=ORDER)
    yield equal("releases", releases, RELEASES, source=LIFECYCLE)
    able = tuple(ledgers(held) for held in releases)
    yield equal("serve, train on, roll back", able, ABLE, source=CAT)


def _relabelled(history: History) -> History:
    first, second, third = history.tasks
    second = second.model_copy(update={"data": f"{second.data}-other"})
    return history.model_copy(update={"tasks": (first, second, third)})


def evaluation_checks(evaluation: Evaluation) -> Iterator[Check]:
    """ACC, BWT, FWT and forgetting of the printed matrix."""
    R = evaluation.R
    require_shape("evaluation.R", R, (3, 3))
    require_length("evaluation.baseline", evaluation.baseline, 3)
    yield equal("evaluation matrix", R, ((0.80, 0.25, 0.18), (0.72, 0.82, 0.25), (0.68, 0.78, 0.85)), source=MATRIX)
    yield equal("baseline", evaluation.baseline, (0.10, 0.20, 0.15), source=MATRIX)
    tight = partial(close, source=MATRIX, tolerance=1e-12)
    yield tight("final ACC", final_accuracy(R), 0.770, digits=3)
    yield tight("BWT terms", backward_terms(R), (-0.12, -0.04), digits=2)
    yield tight("mean BWT", fmean(backward_terms(R)), -0.080, digits=3)
    yield tight("FWT terms", forward_terms(evaluation), (0.05, 0.10), digits=2)
    yield tight("mean FWT", fmean(forward_terms(evaluation)), 0.075, digits=3)
    yield tight("forgetting a task", forgetting(R), (0.12, 0.04), digits=2)
    yield tight("largest forgetting", max(forgetting(R)), 0.120, digits=3)


RELEASES = (("merged_delta",), ("merged_delta", "task_basis"), ("exact_deltas", "immutable_parent"))
ABLE = ((True, False, False), (True, True, False), (True, True, True))
