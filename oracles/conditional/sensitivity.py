"""Eight sweeps of one coordinate each, under a frozen method signature (C 0x0A).

Every number here is a synthetic logical count: no quality, latency, throughput, training or GPU run stands behind it.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, close, equal
from oracles.conditional.contracts import Contract, Method
from oracles.errors import FixtureRefusedError, OracleError
from oracles.matrix import Matrix
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from schemas.canonical import JsonValue, canonical_bytes
from schemas.digests import Digest, manifest_digest

SIGNATURE, ATTENTION, FRACTION, THRESHOLD = "C 0x0A", "C 0x0AB", "C 0x0AC", "C 0x0AD"
COMPOSED, POPULATION, PHASE, REPLAY = "C 0x0AE", "C 0x0AF", "C 0x0AG", "C 0x0AI"

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Three = tuple[Positive, Positive, Positive]


class Entropy(Fixture):
    """Selected weights of two destination rows at three concentrations; the selected ids stay."""

    ids: tuple[tuple[int, int], tuple[int, int]]
    weights: tuple[FixtureMatrix, FixtureMatrix, FixtureMatrix]
    sources: Positive


class Sources(Fixture):
    """SwitchHead: T_k varies, the rest is frozen."""

    T_k: Three
    T_q: Positive
    heads: Positive
    k_source: Positive
    k_destination: Positive


class Fraction(Fixture):
    """Mixture-of-Depths training: C varies."""

    C: Three
    S: Positive
    heads: Positive


class Threshold(Fixture):
    """Mixture-of-Depths decode: tau varies over fixed probabilities."""

    tau: tuple[float, float, float]
    p: FixtureVector
    comparator: Literal["greater", "greater_or_equal"]


class Composed(Fixture):
    """Staged: C_D varies. Integrated: the number of no-op rows varies over S rows."""

    depth_capacity: Three
    no_op_rows: tuple[Count, Count, Count]
    S: Positive


class Capacity(Fixture):
    """Frozen request histogram; the capacity factor varies."""

    factor: tuple[float, float, float]
    requests: tuple[Positive, ...]


class Padding(Fixture):
    """Valid rows frozen; padding rows vary."""

    padding_rows: tuple[Count, Count, Count]
    valid_rows: Positive
    k: Positive
    experts: Positive
    population: Literal["materialised_rows", "valid_rows"]


class Phase(Fixture):
    """One step of one new row: rows before, whether attention ran for it, and what the cache holds."""

    method: Method
    history: Count
    attention_ran: bool
    cache: Literal[
        "dense_shared", "shared_K_mixed_V", "training_only", "sparse_depth", "dense_attention", "dense_multimodal"
    ]


class Evidence(Fixture):
    """What the counts are, and the six things nobody measured."""

    evidence_class: Literal["synthetic_logical_counterfactual"]
    quality_measured: Literal[False]
    latency_measured: Literal[False]
    throughput_measured: Literal[False]
    training_reproduced: Literal[False]
    gpu_runtime_executed: Literal[False]
    cross_method_ranking: Literal[False]


class SensitivityFixture(Fixture):
    """The sweeps of C 0x0AB to 0x0AF, the rows of C 0x0AG and one contract whose signature a curve keeps."""

    contract: Contract
    entropy: Entropy
    switchhead: Sources
    mod_training: Fraction
    mod_decode: Threshold
    mode: Composed
    capacity: Capacity
    padding: Padding
    phases: tuple[Phase, ...]
    evidence: Evidence


class AnotherCurveError(OracleError):
    """A sweep point carries another method signature."""


def coordinates(contract: Contract) -> dict[str, JsonValue]:
    """The twenty-one fields as a document."""
    fields: dict[str, JsonValue] = contract.model_dump(mode="json")
    return fields


def signature(fields: dict[str, JsonValue]) -> Digest:
    """sigma_m over the twenty-one fields."""
    return manifest_digest("oracle_method", canonical_bytes(fields))


def join(curve: Digest, fields: dict[str, JsonValue]) -> None:
    """Accept a point of the same method; a changed field is another curve."""
    if signature(fields) != curve:
        raise AnotherCurveError(f"{signature(fields)} is not a point of {curve}")


def joins(curve: Digest, fields: dict[str, JsonValue]) -> bool:
    """Whether the point belongs to the curve."""
    try:
        join(curve, fields)
    except AnotherCurveError:
        return False
    return True


def selected_entropy(weights: Matrix) -> float:
    """H_sel = -1 / (T_q log k_A) sum g log g over destination rows and selected slots."""
    if any(abs(math.fsum(row) - 1.0) > 1e-12 or min(row) <= 0.0 or len(row) < 2 for row in weights):
        raise FixtureRefusedError("entropy.weights", weights, "at least two positive selected weights that sum to 1")
    terms = math.fsum(g * math.log(g) for row in weights for g in row)
    return -terms / (len(weights) * math.log(len(weights[0])))


def selected(threshold: Threshold, tau: float) -> int:
    """Rows with p > tau; the other comparator also takes equality."""
    inclusive = threshold.comparator == "greater_or_equal"
    return sum(p > tau or (inclusive and p == tau) for p in threshold.p)


def admission(capacity: Capacity, factor: float) -> tuple[int, int, int, int, int]:
    """C, requested, executed, dropped and unused slots at one capacity factor."""
    R, E = sum(capacity.requests), len(capacity.requests)
    C = math.ceil(factor * R / E)
    A = sum(min(n, C) for n in capacity.requests)
    return C, R, A, R - A, E * C - A


def signature_checks(fixture: SensitivityFixture) -> Iterator[Check]:
    """A point keeps the signature; each of the twenty-one fields starts another curve when it changes."""
    fields = coordinates(fixture.contract)
    curve = signature(fields)
    yield equal(
        "contract of the curve", tuple(getattr(fixture.contract, name) for name in fields), MOA, source=SIGNATURE
    )
    yield equal("an unchanged contract joins", joins(curve, fields), True, source=SIGNATURE)
    others = tuple(joins(curve, {**fields, name: "another"}) for name in fields)
    yield equal("a changed field is another curve", others, (False,) * 21, source=SIGNATURE)
    yield equal("evidence class", fixture.evidence.evidence_class, "synthetic_logical_counterfactual", source=SIGNATURE)
    claims = tuple(value for value in fixture.evidence.model_dump().values() if isinstance(value, bool))
    yield equal("measured claims", claims, (False,) * 6, source=SIGNATURE)


def attention_checks(fixture: SensitivityFixture) -> Iterator[Check]:
    """Weight entropy moves without the maps; source length moves one side of SwitchHead."""
    moa, sh = fixture.entropy, fixture.switchhead
    entropies = tuple(selected_entropy(weights) for weights in moa.weights)
    yield close("normalised entropies", entropies, (0.377696, 0.926121, 1.0), source=ATTENTION, digits=6)
    yield close("selected weights", moa.weights, WEIGHTS, source=ATTENTION, digits=2, tolerance=1e-12)
    yield equal("selected ids", moa.ids, ((0, 1), (0, 2)), source=ATTENTION)
    maps = tuple(sum(len(row) for row in weights) * moa.sources for weights in moa.weights)
    yield equal("MoA map elements at each point", maps, (12, 12, 12), source=ATTENTION)
    yield equal("MoA cached rows", moa.sources, 3, source=ATTENTION)
    yield equal("T_k", sh.T_k, (1, 3, 8), source=ATTENTION)
    yield equal("SwitchHead map elements", tuple(sh.T_q * n * sh.heads for n in sh.T_k), (4, 12, 32), source=ATTENTION)
    edges = tuple(n * sh.heads * sh.k_source for n in sh.T_k)
    yield equal("SwitchHead source edges", edges, (4, 12, 32), source=ATTENTION)
    yield equal("SwitchHead destination edges", sh.T_q * sh.heads * sh.k_destination, 8, source=ATTENTION)
    yield equal("SwitchHead frozen", (sh.T_q, sh.heads, sh.k_source, sh.k_destination), (2, 2, 2, 2), source=ATTENTION)


def depth_checks(fixture: SensitivityFixture) -> Iterator[Check]:
    """Linear and quadratic coordinates of C; counts and sparse rows of a threshold."""
    train, decode = fixture.mod_training, fixture.mod_decode
    yield equal("C", train.C, (2, 4, 6), source=FRACTION)
    f = tuple(C / train.S for C in train.C)
    yield equal("MoD map elements", tuple(train.heads * C**2 for C in train.C), (8, 32, 72), source=FRACTION)
    yield equal("FFN coordinate", f, (0.25, 0.5, 0.75), source=FRACTION)
    yield equal("map coordinate", tuple(x**2 for x in f), (0.0625, 0.25, 0.5625), source=FRACTION)
    chosen = tuple(selected(decode, tau) for tau in decode.tau)
    yield equal("tau", decode.tau, (0.25, 0.50, 0.75), source=THRESHOLD)
    yield close(
        "probabilities", decode.p, (0.12, 0.31, 0.49, 0.51, 0.73, 0.94), source=THRESHOLD, digits=2, tolerance=1e-12
    )
    yield equal("selected rows and new K/V rows", chosen, (5, 3, 1), source=THRESHOLD)
    yield equal("skipped rows", tuple(len(decode.p) - n for n in chosen), (1, 3, 5), source=THRESHOLD)
    boundary = selected(decode.model_copy(update={"p": (0.5,)}), 0.5)
    yield equal("p equal to tau is skipped", boundary, 0, source=THRESHOLD)


def composed_checks(fixture: SensitivityFixture) -> Iterator[Check]:
    """Staged moves attention, experts and K/V together; integrated moves experts alone."""
    mode = fixture.mode
    staged = tuple((C, C, C) for C in mode.depth_capacity)
    yield equal("staged attention, experts, K/V", staged, ((2, 2, 2), (4, 4, 4), (8, 8, 8)), source=COMPOSED)
    if max(mode.no_op_rows) > mode.S:
        raise FixtureRefusedError("mode.no_op_rows", mode.no_op_rows, f"at most {mode.S} rows")
    integrated = tuple((mode.S, mode.S - n, mode.S) for n in mode.no_op_rows)
    yield equal("integrated attention, experts, K/V", integrated, ((8, 8, 8), (8, 6, 8), (8, 2, 8)), source=COMPOSED)


def population_checks(fixture: SensitivityFixture) -> Iterator[Check]:
    """Capacity changes what is executed; padding changes what is requested."""
    capacity, padding = fixture.capacity, fixture.padding
    yield equal("capacity factors", capacity.factor, (0.5, 1.0, 1.5), source=POPULATION)
    yield equal("request histogram", capacity.requests, (9, 7, 5, 3), source=POPULATION)
    points = tuple(admission(capacity, factor) for factor in capacity.factor)
    for name, i, printed in (
        ("capacity", 0, (3, 6, 9)),
        ("requested", 1, (24, 24, 24)),
        ("executed", 2, (12, 20, 24)),
        ("dropped", 3, (12, 4, 0)),
        ("unused slots", 4, (0, 4, 12)),
    ):
        yield equal(name, tuple(point[i] for point in points), printed, source=POPULATION)
    yield equal("padding rows", padding.padding_rows, (0, 3, 9), source=POPULATION)
    rows = tuple(padding.valid_rows + n for n in padding.padding_rows)
    yield equal(
        "padding ratio",
        tuple(n / T for n, T in zip(padding.padding_rows, rows, strict=True)),
        (0.0, 0.25, 0.5),
        source=POPULATION,
    )
    routed = rows if padding.population == "materialised_rows" else (padding.valid_rows,) * 3
    yield equal("materialised rows", routed, (9, 12, 18), source=POPULATION)
    requested = tuple(T * padding.k for T in routed)
    yield equal("requested routes with padding", requested, (18, 24, 36), source=POPULATION)
    balanced = tuple(math.ceil(R / padding.experts) for R in requested)
    yield equal("balanced-mean capacity", balanced, (5, 6, 9), source=POPULATION)


def phase_checks(fixture: SensitivityFixture) -> Iterator[Check]:
    """A row is appended where attention ran for a serving cache, whatever the expert route did."""
    table = tuple(transition(phase) for phase in fixture.phases)
    yield equal("phase rows", len(table), 8, source=PHASE)
    yield equal("history, new, after", table, PHASES, source=PHASE)
    caches = tuple((phase.method, phase.cache) for phase in fixture.phases)
    yield equal("cache class by method", caches, CACHES, source=PHASE)
    points = sum(len(curve) for curve in curves(fixture))
    yield equal("operating points", (len(curves(fixture)), points), (8, 24), source=REPLAY)


def transition(phase: Phase) -> tuple[int, int, int]:
    """(history rows, new rows, rows after) of one step."""
    appended = int(phase.attention_ran and phase.cache != "training_only")
    return phase.history, appended, phase.history + appended


def curves(fixture: SensitivityFixture) -> tuple[tuple[object, ...], ...]:
    """The varied coordinate of each sweep."""
    return (
        fixture.entropy.weights,
        fixture.switchhead.T_k,
        fixture.mod_training.C,
        fixture.mod_decode.tau,
        fixture.mode.depth_capacity,
        fixture.mode.no_op_rows,
        fixture.capacity.factor,
        fixture.padding.padding_rows,
    )


def evaluate(fixture: SensitivityFixture) -> Iterator[Check]:
    """Every check of C 0x0A, in the order of its subsections."""
    yield from signature_checks(fixture)
    yield from attention_checks(fixture)
    yield from depth_checks(fixture)
    yield from composed_checks(fixture)
    yield from population_checks(fixture)
    yield from phase_checks(fixture)


# Two rows a point; these give the three printed entropies.
WEIGHTS = (
    ((0.95, 0.05), (0.90, 0.10)),
    ((0.70, 0.30), (0.60, 0.40)),
    ((0.50, 0.50), (0.50, 0.50)),
)
MOA = (
    "qo_pair",
    "dest_row",
    "dest",
    "dest_router",
    "softmax_E",
    "stable_topk",
    "no_capacity",
    "deterministic",
    "k_per_dest",
    "p_over_stopped_Z",
    "attn_sublayer",
    "k_maps",
    "unchanged",
    "stopped_Z_full_softmax",
    "query_local",
    "ids_P_Z",
    "all_source",
    "shared_no_expert_axis",
    "not_verified",
    "not_applicable",
    "paper+96c33ca",
)
PHASES = ((3, 1, 4), (3, 1, 4), (0, 0, 0), (3, 1, 4), (3, 0, 3), (2, 1, 3), (3, 1, 4), (3, 1, 4))
CACHES = (
    ("moa", "dense_shared"),
    ("switchhead", "shared_K_mixed_V"),
    ("mod_training", "training_only"),
    ("mod_decode", "sparse_depth"),
    ("mod_decode", "sparse_depth"),
    ("staged", "sparse_depth"),
    ("integrated", "dense_attention"),
    ("moe_llava", "dense_multimodal"),
)

ORACLE = Oracle(
    name="sensitivity",
    document="C",
    sections=("0x0A", "0x0AB", "0x0AC", "0x0AD", "0x0AE", "0x0AF", "0x0AG", "0x0AI"),
    module=__name__,
    fixture=SensitivityFixture,
    evaluate=evaluate,
    proves=(
        "a sweep point keeps all 21 fields of its method, or it is refused as another curve",
        "24 operating points: entropies, source and map counts, thresholds, capacity and padding",
        "eight phase rows of cache history",
    ),
    does_not_prove=(
        "quality, latency, throughput, training, a GPU run or a ranking of methods",
        "that a threshold or capacity transfers to another workload",
    ),
    own=("entropy.weights", "contract"),
    no_role={"/phases/2/attention_ran": "training keeps activations and no serving row, whether attention ran or not"},
    document_mutations=20,
)
