"""Candidates and how one of them is selected: margins before target, one held-out opening, no runner-up (R 0x0AD)."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal

from oracles.checks import Check, equal
from oracles.matrix import Vector
from oracles.model import Fixture

UNITS, VECTOR = "R 0x0AB", "R 0x0AD"


class Scores(Fixture):
    """Synthetic quality without nuisance."""

    domain_alpha: float
    domain_beta: float
    base_retention: float
    unseen_transfer: float
    calibration: float
    safety: float


class Candidate(Fixture):
    """A candidate with its whole parent state; a control uses information no release has."""

    candidate: str
    base: str
    training: Literal["mixed_data", "one_run_each", "joint", "post_training", "sequential"]
    factor: Literal["one_pair", "independent_pairs", "shared_A", "ordered_pairs"]
    route: Literal["none", "task_id", "uniform", "selected_top2", "dense_softmax"]
    composition: Literal["none", "dynamic", "delta_cat", "attentional"]
    continual: Literal["none", "ordered"]
    runtime: Literal["one_branch", "every_branch", "selected_occurrences"]
    scores: Scores
    control: bool

    def parent(self) -> dict[str, str]:
        """The identity of the candidate: its name and parent states, without scores."""
        return {name: getattr(self, name) for name in Candidate.model_fields if name not in ("scores", "control")}


class Splits(Fixture):
    """Disjoint example identities."""

    training: tuple[int, ...]
    route_validation: tuple[int, ...]
    candidate_selection: tuple[int, ...]
    held_out: tuple[int, ...]


class HeldOut(Fixture):
    """Paired differences of the selected candidate on the held-out split, opened once."""

    target: float
    base: float
    safety: float


class Selection(Fixture):
    """The predeclared rule."""

    estimand: Literal["target", "base", "unseen"]
    direction: Literal["higher", "lower"]
    base_margin: float
    safety_margin: float
    tie_break: Literal["candidate_order", "reverse_candidate_order"]
    held_out: HeldOut


def quality(candidate: Candidate) -> Vector:
    """q_c = (target, base, unseen, calibration, safety); target is the mean of both domains."""
    s = candidate.scores
    return ((s.domain_alpha + s.domain_beta) / 2.0, s.base_retention, s.unseen_transfer, s.calibration, s.safety)


def within_margins(base: float, safety: float, rule: Selection) -> bool:
    """Non-inferior in base retention and safety (differences from the baseline)."""
    return base >= -rule.base_margin - 1e-12 and safety >= -rule.safety_margin - 1e-12


def select(candidates: Sequence[Candidate], rule: Selection) -> Candidate | None:
    """The best primary estimand among non-inferior candidates that are no controls; ties by the stated order."""
    reference = quality(candidates[0])
    index = {"target": 0, "base": 1, "unseen": 2}[rule.estimand]
    sign = 1.0 if rule.direction == "higher" else -1.0
    eligible = [
        c
        for c in candidates
        if not c.control and within_margins(quality(c)[1] - reference[1], quality(c)[4] - reference[4], rule)
    ]
    ordered = eligible if rule.tie_break == "candidate_order" else eligible[::-1]
    return max(ordered, key=lambda c: sign * quality(c)[index], default=None)


def release(rule: Selection) -> str:
    """The outcome of the one opening: release or no release; no other candidate is opened."""
    held = rule.held_out
    better = held.target > 0.0 if rule.direction == "higher" else held.target < 0.0
    return "release" if better and within_margins(held.base, held.safety, rule) else "no_release"


def selection_checks(candidates: Sequence[Candidate], splits: Splits, rule: Selection) -> Iterator[Check]:
    """Validation selects, the held-out split answers once, and a regression is not averaged away."""
    parts = tuple(splits.model_dump().values())
    yield equal("splits", parts, ((1, 2, 3, 4), (5, 6), (7, 8), (9, 10)), source=UNITS)
    disjoint = all(set(a).isdisjoint(b) for a, b in combinations(parts, 2))
    yield equal("splits are disjoint", disjoint, True, source=UNITS)
    declared = (rule.estimand, rule.direction, rule.base_margin, rule.safety_margin, rule.tie_break)
    yield equal("declared rule", declared, ("target", "higher", 0.015, 0.01, "candidate_order"), source=VECTOR)
    held = (rule.held_out.target, rule.held_out.base, rule.held_out.safety)
    yield equal("held-out differences", held, (0.05, -0.02, 0.0), source=VECTOR)
    chosen = select(candidates, rule)
    name = None if chosen is None else chosen.candidate
    yield equal("selected on validation", name, "learned_shared_a_top2", source=VECTOR)
    reference = quality(candidates[0])
    inferior = tuple(
        c.candidate
        for c in candidates
        if not within_margins(quality(c)[1] - reference[1], quality(c)[4] - reference[4], rule)
    )
    yield equal("outside a margin whatever the mean", inferior, ("am_lora_dense",), source=VECTOR)
    yield equal("outcome of the one opening", release(rule), "no_release", source=VECTOR)
