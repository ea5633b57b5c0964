"""Evaluation without a leaderboard: paired cells, vectors of quality, routing and phase ledgers, failures (R 0x0A).

Every score is synthetic: the document prints the means, the cells behind them are ours.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from oracles.checks import Check, below, close, equal
from oracles.errors import FixtureRefusedError
from oracles.matrix import Vector
from oracles.model import Fixture, FixtureVector, Oracle
from oracles.routed.adapter_identity import Layer, factor_scalars
from oracles.routed.cross_contract_replay import value_of
from oracles.routed.evaluation_publication_failures import Fault, failure_checks
from oracles.routed.evaluation_publication_selection import Candidate, Selection, Splits, quality, selection_checks
from oracles.routed.identities import identify

LANES, UNITS, PAIRED, VECTOR = "R 0x0AA", "R 0x0AB", "R 0x0AC", "R 0x0AD"
ROUTING, PHASES, CONTINUAL = "R 0x0AE", "R 0x0AF", "R 0x0AG"

Whole = Annotated[int, Field(ge=0)]
STORED_EXPERTS, ACTIVE_EXPERTS = 3, 2
WORKLOADS = ("domain_alpha", "domain_beta", "base_retention", "unseen_transfer")


class Nuisance(Fixture):
    """One paired nuisance tuple and the offset it adds to every candidate."""

    init: int
    data: int
    route_tie: int
    request_order: int
    offset: float


class Attempt(Fixture):
    """One attempt at a cell."""

    candidate: str
    workload: Literal["domain_alpha", "domain_beta", "base_retention", "unseen_transfer"]
    nuisance: int
    outcome: Literal["quality", "infrastructure_failure", "numerical_failure"]


class Routing(Fixture):
    """Route mass, selected counts, two selected sets and what changed between them, and what was materialised."""

    profile: Literal["one_branch", "uniform", "top2", "top2_postmask"]
    mass: FixtureVector
    counts: tuple[Whole, Whole, Whole]
    before: tuple[int, ...]
    after: tuple[int, ...]
    changed: Literal["adjacent_token", "layer", "nuisance", "prompt", "generation"]
    materialized: Whole
    selected: Annotated[int, Field(ge=1)]


class Phase(Fixture):
    """Synthetic work units of one candidate in one phase."""

    candidate: str
    phase: Literal["prefill", "decode"]
    queue: Whole
    base: Whole
    route: Whole
    pack: Whole
    low_rank: Whole
    scatter: Whole
    collective: Whole
    cache: Whole


class EvaluationFixture(Fixture):
    """The design of R 0x0AA to 0x0AH."""

    candidates: tuple[Candidate, ...]
    nuisance: tuple[Nuisance, Nuisance, Nuisance, Nuisance]
    attempts: tuple[Attempt, ...]
    splits: Splits
    selection: Selection
    routing: tuple[Routing, Routing, Routing, Routing]
    phases: tuple[Phase, ...]
    faults: tuple[Fault, ...]


class Cell(NamedTuple):
    """u = (candidate, workload, nuisance)."""

    candidate: str
    workload: str
    nuisance: int


class Summary(NamedTuple):
    """Mean paired difference and its standard error; no interval without a sampling unit and dependence."""

    mean: float
    error: float


def cells(fixture: EvaluationFixture) -> dict[Cell, float]:
    """m_cws for every candidate, workload and nuisance tuple."""
    return {
        Cell(c.candidate, workload, s): getattr(c.scores, workload) + nuisance.offset
        for c in fixture.candidates
        for workload in WORKLOADS
        for s, nuisance in enumerate(fixture.nuisance)
    }


def paired(measured: dict[Cell, float], candidate: str, baseline: str, tuples: int) -> Vector | None:
    """d_cws on equal workload and nuisance; None while one side of one pair is missing."""
    units = [(workload, s) for workload in WORKLOADS for s in range(tuples)]
    needed = [Cell(name, *unit) for name in (candidate, baseline) for unit in units]
    if any(cell not in measured for cell in needed):
        return None
    return tuple(measured[Cell(candidate, *unit)] - measured[Cell(baseline, *unit)] for unit in units)


def summary(differences: Vector) -> Summary:
    """Mean, and sqrt(sample variance / N)."""
    mean, n = fmean(differences), len(differences)
    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1)
    return Summary(mean, math.sqrt(variance / n))


def may_retry(attempt: Attempt) -> bool:
    """Only an infrastructure failure reruns the same unit; a numerical failure is an outcome."""
    return attempt.outcome == "infrastructure_failure"


def entropy(mass: Sequence[float]) -> float:
    """-sum_j p_j log p_j of the normalised mass."""
    total = math.fsum(mass)
    if total <= 0.0 or min(mass) < 0.0:
        raise FixtureRefusedError("routing.mass", list(mass), "non-negative mass with a positive sum")
    return -math.fsum(m / total * math.log(m / total) for m in mass if m > 0.0)


def load_variation(counts: Sequence[int]) -> float:
    """CV of the selected counts, with the population deviation."""
    mean = fmean(counts)
    if mean == 0.0:
        raise FixtureRefusedError("routing.counts", list(counts), "at least one selected occurrence")
    return math.sqrt(fmean((n - mean) ** 2 for n in counts)) / mean


def jaccard(before: Sequence[int], after: Sequence[int]) -> float:
    """|S and S'| / |S or S'|."""
    union = set(before) | set(after)
    return len(set(before) & set(after)) / len(union) if union else 1.0


def phase_total(phase: Phase) -> int:
    """The eight terms of one request: queue, base, route, pack, low rank, scatter, collective, cache."""
    return sum(value for value in phase.model_dump().values() if isinstance(value, int))


def candidate_checks(fixture: EvaluationFixture) -> Iterator[Check]:
    """Six identities over seven parent states; none is another's tensor shape."""
    parents = tuple(tuple(c.parent().values()) for c in fixture.candidates)
    yield equal("candidates", parents, CANDIDATES, source=LANES)
    found = {identify("oracle_candidate", c.parent()) for c in fixture.candidates}
    yield equal("candidate identities", len(found), 6, source=LANES)
    controls = tuple(c.candidate for c in fixture.candidates if c.control)
    yield equal("controls with information no release has", controls, ("oracle_task_id",), source=LANES)


def paired_checks(fixture: EvaluationFixture) -> Iterator[Check]:
    """The cross product, the means, the paired differences, and what a missing cell does to them."""
    sides = (len(fixture.candidates), len(WORKLOADS), len(fixture.nuisance))
    yield equal("candidates, workloads, nuisance tuples", sides, (6, 4, 4), source=UNITS)
    tuples = tuple((s.init, s.data, s.route_tie, s.request_order) for s in fixture.nuisance)
    yield equal("nuisance tuples", tuples, tuple((i,) * 4 for i in (1, 2, 3, 4)), source=UNITS)
    offsets = tuple(s.offset for s in fixture.nuisance)
    yield equal("common offsets", offsets, (-0.01, 0.01, -0.02, 0.02), source=PAIRED)
    measured = cells(fixture)
    yield equal("quality cells", len(measured), 96, source=UNITS)
    names = tuple(c.candidate for c in fixture.candidates)
    means = tuple(fmean(m for cell, m in measured.items() if cell.candidate == name) for name in names)
    yield close("mean quality", means, MEANS, source=PAIRED, digits=4, tolerance=1e-12)
    contrasts = tuple(paired(measured, name, names[0], 4) or () for name in names)
    summaries = tuple(map(summary, contrasts))
    yield close(
        "paired differences", tuple(s.mean for s in summaries), DIFFERENCES, source=PAIRED, digits=4, tolerance=1e-12
    )
    yield close("standard errors, no intervals", tuple(s.error for s in summaries), ERRORS, source=PAIRED, digits=9)
    spread = max(max(d[4 * w : 4 * w + 4]) - min(d[4 * w : 4 * w + 4]) for d in contrasts for w in range(4))
    yield below("pairing removes the common offset", spread, 1e-15, source=PAIRED)
    lacking = {cell: m for cell, m in measured.items() if cell != Cell(names[3], "domain_beta", 2)}
    yield equal("a contrast with a missing cell", paired(lacking, names[3], names[0], 4), None, source=UNITS)
    replaced = {**lacking, Cell(names[3], "domain_beta", 9): 1.0}
    yield equal("a contrast with a replacement seed", paired(replaced, names[3], names[0], 4), None, source=UNITS)


def attempt_checks(attempts: Sequence[Attempt]) -> Iterator[Check]:
    """A retry keeps the failed attempt and its unit; a numerical failure stays."""
    rows = tuple(tuple(a.model_dump().values()) for a in attempts)
    yield equal("attempts kept", rows, ATTEMPTS, source=UNITS)
    yield equal("attempts that may be retried", tuple(map(may_retry, attempts)), (True, False, False), source=UNITS)


def vector_checks(fixture: EvaluationFixture) -> Iterator[Check]:
    """Quality is a vector, and parameters are matched in two ledgers."""
    vectors = tuple(quality(c) for c in fixture.candidates)
    yield close("quality vectors", vectors, QUALITY, source=VECTOR, digits=3, tolerance=1e-12)
    stored, active = (
        factor_scalars(Layer(d_in=6, d_out=5, r=2, J=experts))[:2] for experts in (STORED_EXPERTS, ACTIVE_EXPERTS)
    )
    yield equal("stored scalars, independent and shared A", stored, (66, 42), source=VECTOR)
    yield equal("active scalars a token, independent and shared A", active, (44, 32), source=VECTOR)


def routing_checks(routing: Sequence[Routing]) -> Iterator[Check]:
    """Entropy, load, stability and materialisation are four different things."""
    named = tuple((r.profile, r.changed, r.mass, r.counts) for r in routing)
    yield equal("routing profiles", named, PROFILES, source=ROUTING)
    entropies = tuple(entropy(r.mass) for r in routing)
    printed = (0.0, math.log(3.0), 1.082195530, 1.082195530)
    yield close("route entropy", entropies, printed, source=ROUTING, digits=9)
    variation = tuple(load_variation(r.counts) for r in routing)
    yield close("load CV", variation, (1.414213562, 0.0, 0.176776695, 0.176776695), source=ROUTING, digits=9)
    sets = tuple((r.before, r.after) for r in routing)
    yield equal("selected sets", sets, SETS, source=ROUTING)
    stability = tuple(jaccard(*pair) for pair in sets)
    yield close("Jaccard stability", stability, (1.0, 1.0, 1 / 3, 1 / 3), source=ROUTING, digits=12)
    rows = tuple((r.materialized, r.selected) for r in routing)
    yield equal("materialised and selected rows", rows, ((4, 4), (12, 12), (8, 8), (12, 8)), source=ROUTING)
    ratios = tuple(r.materialized / r.selected for r in routing)
    yield equal("materialisation ratio", ratios, (1.0, 1.0, 1.0, 1.5), source=ROUTING)


def phase_checks(fixture: EvaluationFixture) -> Iterator[Check]:
    """Twelve ledgers of labelled work units, two phases a candidate."""
    rows = tuple((p.candidate, p.phase) for p in fixture.phases)
    expected = tuple((c.candidate, phase) for c in fixture.candidates for phase in ("prefill", "decode"))
    yield equal("phase ledgers", rows, expected, source=PHASES)
    yield equal("number of phase ledgers", len(rows), 12, source=PHASES)
    terms = len(Phase.model_fields) - 2
    yield equal("terms of a request", terms, 8, source=PHASES)
    totals = {row: phase_total(phase) for row, phase in zip(rows, fixture.phases, strict=True)}
    yield equal("work units", tuple(totals.values()), WORK, source=PHASES)
    for name, printed in (("learned_shared_a_top2", (132, 22)), ("static_fusion_child", (112, 12))):
        found = tuple(totals.get((name, phase)) for phase in ("prefill", "decode"))
        yield equal(f"{name} prefill and decode", found, printed, source=PHASES)


def continual_checks() -> Iterator[Check]:
    """The task-by-time report is consumed, not recomputed: a good ACC with a negative BWT."""
    found = tuple(value_of("continual_state", name) for name in ("final ACC", "mean BWT", "mean FWT"))
    yield close("ACC, BWT, FWT", found, (0.770, -0.080, 0.075), source=CONTINUAL, digits=3)


def evaluate(fixture: EvaluationFixture) -> Iterator[Check]:
    """Every check of R 0x0A."""
    yield from candidate_checks(fixture)
    yield from paired_checks(fixture)
    yield from attempt_checks(fixture.attempts)
    yield from vector_checks(fixture)
    yield from selection_checks(fixture.candidates, fixture.splits, fixture.selection)
    yield from routing_checks(fixture.routing)
    yield from phase_checks(fixture)
    yield from failure_checks(fixture.faults)
    yield from continual_checks()


CANDIDATES = tuple(
    tuple(line.split())
    for line in (
        "mixed_rank16 base-r1 mixed_data one_pair none none none one_branch",
        "oracle_task_id base-r1 one_run_each independent_pairs task_id none none one_branch",
        "uniform_shared_a base-r1 joint shared_A uniform dynamic none every_branch",
        "learned_shared_a_top2 base-r1 joint shared_A selected_top2 dynamic none selected_occurrences",
        "static_fusion_child base-r1 post_training independent_pairs none delta_cat none one_branch",
        "am_lora_dense base-r1 sequential ordered_pairs dense_softmax attentional ordered every_branch",
    )
)
MEANS: Vector = (0.7175, 0.7725, 0.7150, 0.7575, 0.7375, 0.7450)
DIFFERENCES: Vector = (0.0, 0.0550, -0.0025, 0.0400, 0.0200, 0.0275)
ERRORS: Vector = (0.0, 0.012315302, 0.001118034, 0.007958224, 0.004082483, 0.007388053)
ATTEMPTS = (
    ("learned_shared_a_top2", "domain_beta", 2, "infrastructure_failure"),
    ("learned_shared_a_top2", "domain_beta", 2, "quality"),
    ("am_lora_dense", "unseen_transfer", 4, "numerical_failure"),
)
QUALITY = (
    (0.72, 0.80, 0.63, 0.90, 0.95),
    (0.82, 0.79, 0.66, 0.91, 0.95),
    (0.715, 0.80, 0.63, 0.90, 0.95),
    (0.785, 0.79, 0.67, 0.89, 0.945),
    (0.755, 0.80, 0.64, 0.90, 0.95),
    (0.77, 0.78, 0.66, 0.88, 0.94),
)
PROFILES = (
    ("one_branch", "adjacent_token", (1.0, 0.0, 0.0), (4, 0, 0)),
    ("uniform", "layer", (1.0, 1.0, 1.0), (4, 4, 4)),
    ("top2", "nuisance", (3.0, 3.0, 2.0), (3, 3, 2)),
    ("top2_postmask", "generation", (3.0, 3.0, 2.0), (3, 3, 2)),
)
SETS = (((0,), (0,)), ((0, 1, 2), (0, 1, 2)), ((0, 2), (1, 2)), ((0, 2), (1, 0)))
WORK = (118, 14, 116, 18, 126, 17, 132, 22, 112, 12, 142, 22)

ORACLE = Oracle(
    name="evaluation_publication",
    document="R",
    sections=("0x0AA", "0x0AB", "0x0AC", "0x0AD", "0x0AE", "0x0AF", "0x0AG", "0x0AH"),
    module=__name__,
    fixture=EvaluationFixture,
    evaluate=evaluate,
    proves=(
        "96 paired cells give the printed means and differences; a missing cell or a replacement seed gives none",
        "quality stays a vector with margins; entropy, load, stability and materialisation stay apart",
        "36 failures are injected into their owners' fixtures, named by their detectors, and recover there",
    ),
    does_not_prove=(
        "that any candidate is better than another: every score and work unit is synthetic",
        "links, figures, rendering or publication of any article; a confidence interval",
    ),
    own=("candidates", "nuisance", "attempts", "splits", "selection", "routing", "phases", "faults"),
    document_mutations=30,
)
