"""What a continual state costs and what its matrix says: ledgers, ACC, BWT, FWT and forgetting (R 0x06J, 0x06K)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from schemas.adapter import AdapterManifest
from schemas.continual import ContinualStateManifest, TaskTime
from schemas.digests import Digest
from schemas.model import Record
from schemas.router import RouterManifest
from validators.continual import capacity

Score = float | None


class Transfer(Record):
    """Averages over tasks, each null when a cell it needs is missing; forgetting is a fall from the best score."""

    acc: Score
    bwt: Score
    fwt: Score
    forgetting: tuple[Score, ...]


class Ledgers(Record):
    """Scalars of a state: factors of all tasks, raters, what is frozen and trained now, and what a row costs.

    `branches` are computed for every input; `logits` is what the selector scores a row and module. `rollback` names
    what a return needs: the digests of parents, oldest first.
    """

    factors: int
    selector: int
    frozen: int
    trainable: int
    branches: int
    logits: int
    capacity: dict[str, tuple[int, int]]
    rollback: tuple[Digest, ...]


def transfer(matrix: TaskTime) -> Transfer:
    """The four estimands of R 0x06K.

    ``ACC = mean R[T,j]``, ``BWT = mean (R[T,j] - R[j,j])``, ``FWT = mean (R[j-1,j] - b[j])``, and for each earlier
    task ``max over i >= j of R[i,j], minus R[T,j]``. A single task has neither BWT nor FWT.
    """
    scores, last = matrix.scores, len(matrix.scores) - 1
    final = scores[last]
    return Transfer(
        acc=_mean(final),
        bwt=_mean(tuple(_minus(final[j], scores[j][j]) for j in range(last))),
        fwt=_mean(tuple(_minus(scores[j - 1][j], matrix.baseline[j]) for j in range(1, last + 1))),
        forgetting=tuple(_minus(_best(scores, j), final[j]) for j in range(last)),
    )


def ledgers(
    state: ContinualStateManifest, adapters: Mapping[Digest, AdapterManifest], selector: RouterManifest | None
) -> Ledgers:
    """Count the scalars of a state: ``sum r (d_in + d_out)``, and the raters where a selector weighs the branches."""
    sizes = [_size(adapters[task.adapter]) for task in state.tasks]
    gates = () if selector is None else tuple(item.value.shape for item in selector.tensors.values())
    raters = sum(prod(shape) for shape in gates)
    return Ledgers(
        factors=sum(sizes),
        selector=raters,
        frozen=sum(sizes[:-1]),
        trainable=sizes[-1] + raters,
        branches=1 if selector is None else len(sizes),
        logits=0 if selector is None else selector.candidates,
        capacity=capacity(state, adapters),
        rollback=state.parents,
    )


def _size(adapter: AdapterManifest) -> int:
    return sum(prod(factor.a.shape) + prod(factor.b.shape) for factor in adapter.factors)


def _best(scores: tuple[tuple[Score, ...], ...], task: int) -> Score:
    since = [row[task] for row in scores[task:]]
    known = [score for score in since if score is not None]
    return max(known) if len(known) == len(since) else None


def _minus(left: Score, right: Score) -> Score:
    return None if left is None or right is None else left - right


def _mean(values: tuple[Score, ...]) -> Score:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
