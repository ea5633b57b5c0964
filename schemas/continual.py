"""The continual state: an ordered history of tasks, in which order is identity (R 0x06)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.digests import Digest
from schemas.linked import Link, LinkedManifest
from schemas.model import Finite, Identifier, Key, ModuleName, NoneLiteral, NotVerified, Record

ContinualLane = Literal["olora_ordered", "amlora_selector"]


class Task(Record):
    """One task: its name, the manifest of its data, and the adapter that was trained on it."""

    task: Identifier
    data: Digest | NotVerified
    adapter: Digest


class Objective(Record):
    """The loss beside the task's own: paper and code differ in norm and in squaring (R 0x06D, 0x06E).

    `reduction` names the axes it is summed over; `coefficients` its weights.
    """

    regularizer: Literal["squared_frobenius", "entrywise_l1", "rater_l1", "none"] | NotVerified
    reduction: tuple[Identifier, ...]
    coefficients: dict[Key, Finite]


class TaskTime(Record):
    """``R[i][j]``, the score on task j after learning task i, and each task's score before any (R 0x06K).

    A missing cell is null and stays missing.
    """

    metric: Key
    scores: tuple[tuple[Finite | None, ...], ...]
    baseline: tuple[Finite | None, ...]

    @model_validator(mode="after")
    def _is_square(self) -> Self:
        if any(len(row) != len(self.scores) for row in (*self.scores, self.baseline)):
            raise ValueError("scores is a square of tasks by tasks, and baseline has one score a task")
        return self


class Consolidation(Record):
    """What became of old factors: kept apart, or merged into a parent, with or without the basis they spanned."""

    kind: Literal["kept_apart", "merged"]
    basis: Literal["kept", "discarded"]


class ContinualStateManifest(LinkedManifest):
    """The state after its last task. Parents are the states after each earlier task, oldest first.

    `pair_map` leads from each module of the earlier tasks to the module of the newest that continues it.
    `concatenation` says where the tasks' scales are when their factors stand side by side.
    """

    KIND: ClassVar[str] = "continual_state"
    kind: Literal["continual_state"] = "continual_state"
    base: Digest
    lane: ContinualLane
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    parents: tuple[Digest, ...]
    selector: Digest | NoneLiteral
    objective: Objective
    trainable: tuple[Identifier, ...]
    frozen: tuple[Identifier, ...]
    pair_map: dict[ModuleName, ModuleName]
    concatenation: Literal["scale_in_blocks", "one_scale", "separate_branches"]
    consolidation: Consolidation
    orthogonality: Literal["exact", "not_claimed"]
    evaluation: TaskTime | NotVerified

    def links(self) -> tuple[Link, ...]:
        """Base, the tasks' adapters in order, parents in order, and the selector."""
        selector = () if self.selector == "none" else (("selector", self.selector),)
        return (
            ("base", self.base),
            *(("task", task.adapter) for task in self.tasks),
            *(("parent", parent) for parent in self.parents),
            *selector,
        )

    @model_validator(mode="after")
    def _tasks_once(self) -> Self:
        names = [task.task for task in self.tasks]
        if len(set(names)) != len(names):
            raise ValueError("a task is learned once")
        if len({task.adapter for task in self.tasks}) != len(names):
            raise ValueError("a task has an adapter of its own; one that stands twice is summed twice")
        return self
