"""Routing granularity: how long a decision lives, where it applies, what it may read, and what really runs (R 0x07)."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, close, equal
from oracles.errors import FixtureRefusedError
from oracles.matrix import Matrix, Vector, distance, require_length, require_shape, softmax, transpose
from oracles.model import Fixture, FixtureMatrix, FixtureVector, Oracle
from oracles.routed.mixture import top_k
from oracles.routed.routing_granularity_prefix import Prefix, persistence_checks

AXES, SEARCH, XLORA, TOP_K = "R 0x07A", "R 0x07B", "R 0x07F", "R 0x07F.1"
FEATURES, POOLING, SPARSE, WITNESS = "R 0x07G", "R 0x07G.1", "R 0x07J", "R 0x07L"

Count = Annotated[int, Field(ge=1)]
Axis = Literal["request", "token", "layer", "matrix"]
Lifetime = Literal["task", "prompt", "sequence", "token"]
Feature = Literal[
    "few_shot_set",
    "test_labels",
    "masked_prompt",
    "mask_blind_mean",
    "declared_input",
    "causal_prefix",
    "future_tokens",
    "same_layer_output",
]


class Extents(Fixture):
    """B requests, S tokens, L layers, P matrices, J adapters."""

    request: Count
    token: Count
    layer: Count
    matrix: Count
    adapters: Count


class Policy(Fixture):
    """A route and the axes along which it may change; along all others one decision is shared."""

    name: Literal["task", "request", "sequence_layer", "token_layer", "token_layer_matrix"]
    varies: tuple[Axis, ...]


class Prompt(Fixture):
    """Hidden rows of one request and the mask of its valid positions."""

    rows: FixtureMatrix
    mask: tuple[Literal[0, 1], ...]


class Pooling(Fixture):
    """Two requests of a batch, one padded, one not."""

    policy: Literal["masked", "padding_blind"]
    requests: tuple[Prompt, Prompt]


class Search(Fixture):
    """A few-shot task, a grid of adapter weights, and requests served afterwards; values are ours."""

    grid: tuple[FixtureVector, FixtureVector]
    optimum: FixtureVector
    alpha: float
    served_requests: Count


class XLora(Fixture):
    """Dense scalings, the optional top-k normalisation, and what the two passes do with one cache."""

    dense: FixtureMatrix
    k: Count
    normalization: Literal["row", "flattened"]
    use_cache: Literal["off", "shared"]
    repair: Literal["none", "recompute_second_pass"]


class Asked(Fixture):
    """A router of some lifetime asks for a feature."""

    lifetime: Lifetime
    feature: Feature


class Execution(Fixture):
    """Logits, the selected ids, which adapters ran, and what is known about that."""

    logits: FixtureVector
    selected: tuple[int, ...]
    trace: tuple[int, ...]
    evidence: Literal["dense_all_candidates", "trace", "not_verified"]


class GranularityFixture(Fixture):
    """The toy batch and the witnesses of R 0x07."""

    extents: Extents
    policies: tuple[Policy, Policy, Policy, Policy, Policy]
    pooling: Pooling
    search: Search
    prefix: Prefix
    xlora: XLora
    features: tuple[Asked, ...]
    executions: tuple[Execution, Execution, Execution, Execution]


def axis_sizes(extents: Extents) -> dict[Axis, int]:
    """The model extent of every axis a route may vary along."""
    return {"request": extents.request, "token": extents.token, "layer": extents.layer, "matrix": extents.matrix}


def logical_entries(extents: Extents, policy: Policy) -> int:
    """N_G = B S_r L_r P_r J, with extent 1 on every shared axis."""
    return extents.adapters * math.prod(size for axis, size in axis_sizes(extents).items() if axis in policy.varies)


def visited_entries(extents: Extents, policy: Policy) -> int:
    """The same count from below: distinct gate indices over every row, layer and matrix of the batch."""
    sizes = axis_sizes(extents)
    seen = {
        (tuple(i if axis in policy.varies else 0 for axis, i in zip(sizes, index, strict=True)), j)
        for index in product(*map(range, sizes.values()))
        for j in range(extents.adapters)
    }
    return len(seen)


def pooled(prompt: Prompt, policy: str) -> Vector:
    """Mean over valid positions; the padding-blind mean divides by all of them."""
    require_length("pooling.mask", prompt.mask, len(prompt.rows))
    mask = prompt.mask if policy == "masked" else (1,) * len(prompt.rows)
    if not any(mask):
        raise FixtureRefusedError("pooling.mask", "no valid position", "at least one")
    columns = transpose(prompt.rows)
    return tuple(math.fsum(m * x for m, x in zip(mask, column, strict=True)) / sum(mask) for column in columns)


def last_valid(prompt: Prompt) -> int:
    """The position of the last valid prompt token, which is not the last array row under right padding."""
    return max(s for s, valid in enumerate(prompt.mask) if valid)


class TaskArtifact:
    """Adapter weights searched once a task; `evaluations` counts calls of the objective."""

    def __init__(self, search: Search) -> None:
        self.evaluations = 0
        self._search = search
        self.weights = min(product(*search.grid), key=self._objective)

    def _objective(self, weights: Vector) -> float:
        self.evaluations += 1
        error = math.fsum((w - o) ** 2 for w, o in zip(weights, self._search.optimum, strict=True))
        return error + self._search.alpha * math.fsum(map(abs, weights))

    def serve(self) -> Vector:
        """One request of the task: the stored weights, no search."""
        return self.weights


def selected_rows(xlora: XLora, normalization: str) -> Matrix:
    """Top-k weights: each row over its own sum, or (as pinned) one softmax over the values of all rows."""
    supports = tuple(top_k(row, xlora.k) for row in xlora.dense)
    if normalization == "row":
        return tuple(
            tuple(g / math.fsum(row[q] for q in support) if j in support else 0.0 for j, g in enumerate(row))
            for row, support in zip(xlora.dense, supports, strict=True)
        )
    total = math.fsum(math.exp(row[j]) for row, support in zip(xlora.dense, supports, strict=True) for j in support)
    return tuple(
        tuple(math.exp(g) / total if j in support else 0.0 for j, g in enumerate(row))
        for row, support in zip(xlora.dense, supports, strict=True)
    )


def may_share_cache(use_cache: str, repair: str) -> bool:
    """Scaling pass and forward pass are two executions: one cache needs a documented repair."""
    return use_cache == "off" or repair != "none"


def available(lifetime: Lifetime, feature: Feature) -> bool:
    """Whether the feature exists, and may be read, when a router of this lifetime decides."""
    return feature in LEGAL[lifetime]


def sparse_claim(execution: Execution) -> bool:
    """Sparse execution is claimed only by a trace that holds the selected adapters and no other."""
    return (
        execution.evidence == "trace"
        and set(execution.trace) == set(execution.selected)
        and len(execution.trace) < len(execution.logits)
    )


def axis_checks(fixture: GranularityFixture) -> Iterator[Check]:
    """Five lifetimes and placements on one batch."""
    sizes = (*axis_sizes(fixture.extents).values(), fixture.extents.adapters)
    yield equal("B, S, L, P, J", sizes, (2, 3, 2, 2, 3), source=AXES)
    yield equal("varying axes", tuple((p.name, p.varies) for p in fixture.policies), POLICIES, source=AXES)
    formula = tuple(logical_entries(fixture.extents, policy) for policy in fixture.policies)
    yield equal("logical gate entries", formula, (3, 6, 12, 36, 72), source=AXES)
    counted = tuple(visited_entries(fixture.extents, policy) for policy in fixture.policies)
    yield equal("distinct gates over the batch", counted, (3, 6, 12, 36, 72), source=AXES)


def pooling_checks(pooling: Pooling) -> Iterator[Check]:
    """Padding changes the blind mean of the padded request only."""
    padded, full = pooling.requests
    yield equal("padded request", padded.rows, ((2.0, 0.0), (0.0, 2.0), (100.0, 100.0)), source=POOLING)
    yield equal("unpadded request", full.rows, ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)), source=POOLING)
    yield equal("masks", (padded.mask, full.mask), ((1, 1, 0), (1, 1, 1)), source=POOLING)
    used = pooled(padded, pooling.policy)
    yield equal("pooled request", used, (1.0, 1.0), source=POOLING)
    blind = pooled(padded, "padding_blind")
    yield equal("padding-blind mean", blind, (34.0, 34.0), source=POOLING)
    yield equal("maximum difference", distance((blind,), (used,)), 33.0, source=POOLING)
    both = (pooled(full, "masked"), pooled(full, "padding_blind"))
    yield close("unpadded request under both means", both, ((2 / 3, 2 / 3),) * 2, source=POOLING, digits=12)
    positions = tuple(last_valid(prompt) for prompt in pooling.requests)
    yield equal("last valid positions", positions, (1, 2), source=POOLING)


def search_checks(search: Search) -> Iterator[Check]:
    """The search is paid once a task and never in a request."""
    require_length("search.optimum", search.optimum, 2)
    yield equal("grid", search.grid, ((-0.5, 0.0, 0.5, 1.0), (-0.25, 0.0, 0.25)), source=SEARCH)
    yield equal("few-shot optimum and penalty", (*search.optimum, search.alpha), (0.75, -0.375, 0.125), source=SEARCH)
    artifact = TaskArtifact(search)
    yield equal("search evaluations a task", artifact.evaluations, 12, source=WITNESS)
    yield equal("task weights", artifact.weights, (0.5, -0.25), source=SEARCH)
    served = {artifact.serve() for _ in range(search.served_requests)}
    yield equal("requests served, weights seen", (search.served_requests, len(served)), (5, 1), source=SEARCH)
    yield equal("search evaluations a request", artifact.evaluations - 12, 0, source=WITNESS)


def xlora_checks(xlora: XLora) -> Iterator[Check]:
    """Selected weights of a row sum to one; the flattened softmax normalises the batch instead."""
    require_shape("xlora.dense", xlora.dense, (2, 3))
    yield equal("dense scalings", xlora.dense, ((0.70, 0.20, 0.10), (0.10, 0.60, 0.30)), source=TOP_K)
    right = selected_rows(xlora, xlora.normalization)
    yield close("selected weights", right, RIGHT, source=TOP_K, digits=5)
    yield close("row sums", tuple(map(math.fsum, right)), (1.0, 1.0), source=TOP_K, digits=12)
    pinned = selected_rows(xlora, "flattened")
    yield close("flattened softmax", pinned, PINNED, source=TOP_K, digits=5)
    sums = tuple(map(math.fsum, pinned))
    yield close("row sums of the flattened softmax", sums, (0.50493, 0.49507), source=TOP_K, digits=5)
    yield close("global selected sum", math.fsum(sums), 1.0, source=TOP_K, digits=12)
    yield equal("cache and repair", (xlora.use_cache, xlora.repair), ("off", "none"), source=XLORA)
    passes = tuple(product(("off", "shared"), ("none", "recompute_second_pass")))
    allowed = tuple(may_share_cache(*choice) for choice in passes)
    yield equal("two passes over one cache", allowed, (True, True, False, True), source=XLORA)


def feature_checks(features: Sequence[Asked]) -> Iterator[Check]:
    """Four shortcuts are refused: future tokens, test labels, same-layer output, mask-blind pooling."""
    asked = tuple((a.lifetime, a.feature) for a in features)
    yield equal("features asked for", asked, tuple(row[:2] for row in FEATURE_TABLE), source=FEATURES)
    verdicts = tuple(available(a.lifetime, a.feature) for a in features)
    yield equal("features available", verdicts, tuple(row[2] for row in FEATURE_TABLE), source=FEATURES)
    refused: tuple[str, ...] = tuple(sorted({a.feature for a in features if not available(a.lifetime, a.feature)}))
    yield equal("refused shortcuts", refused, REFUSED, source=FEATURES)


def execution_checks(executions: Sequence[Execution]) -> Iterator[Check]:
    """Positive gates keep every branch; a selection is sparse work only where a trace says so."""
    for execution in executions:
        if not all(0 <= j < len(execution.logits) for j in (*execution.selected, *execution.trace)):
            raise FixtureRefusedError("executions", execution.selected, "candidate indices")
    dense = executions[0]
    positive = sum(g > 0.0 for g in softmax(dense.logits))
    yield equal("logits", tuple(e.logits for e in executions), ((0.5, -0.25, 1.0),) * 4, source=SPARSE)
    branches = (positive, len(executions[2].trace))
    yield equal("dense and selected branches", branches, (3, 2), source=WITNESS)
    selections = tuple(e.selected == top_k(e.logits, len(e.selected)) for e in executions[1:])
    yield equal("selections follow the logits", selections, (True, True, True), source=SPARSE)
    seen = tuple((e.evidence, e.selected, e.trace) for e in executions)
    yield equal("execution evidence", seen, EVIDENCE, source=SPARSE)
    claims = tuple(sparse_claim(e) for e in executions)
    yield equal("sparse claims admitted", claims, (False, False, True, False), source=SPARSE)


def evaluate(fixture: GranularityFixture) -> Iterator[Check]:
    """Every check of R 0x07."""
    yield from axis_checks(fixture)
    yield from search_checks(fixture.search)
    yield from persistence_checks(fixture.prefix)
    yield from xlora_checks(fixture.xlora)
    yield from feature_checks(fixture.features)
    yield from pooling_checks(fixture.pooling)
    yield from execution_checks(fixture.executions)


LEGAL: dict[Lifetime, frozenset[Feature]] = {
    "task": frozenset({"few_shot_set"}),
    "prompt": frozenset({"masked_prompt"}),
    "sequence": frozenset({"masked_prompt", "declared_input"}),
    "token": frozenset({"causal_prefix"}),
}
POLICIES = (
    ("task", ()),
    ("request", ("request",)),
    ("sequence_layer", ("request", "layer")),
    ("token_layer", ("request", "token", "layer")),
    ("token_layer_matrix", ("request", "token", "layer", "matrix")),
)
RIGHT: Matrix = ((0.77778, 0.22222, 0.0), (0.0, 0.66667, 0.33333))
PINNED: Matrix = ((0.31430, 0.19063, 0.0), (0.0, 0.28439, 0.21068))
FEATURE_TABLE = (
    ("task", "few_shot_set", True),
    ("task", "test_labels", False),
    ("prompt", "masked_prompt", True),
    ("prompt", "future_tokens", False),
    ("prompt", "mask_blind_mean", False),
    ("sequence", "declared_input", True),
    ("token", "causal_prefix", True),
    ("token", "future_tokens", False),
    ("token", "same_layer_output", False),
)
REFUSED = ("future_tokens", "mask_blind_mean", "same_layer_output", "test_labels")
EVIDENCE = (
    ("dense_all_candidates", (0, 1, 2), (0, 1, 2)),
    ("trace", (2, 0), (0, 1, 2)),
    ("trace", (2, 0), (2, 0)),
    ("not_verified", (2, 0), ()),
)

ORACLE = Oracle(
    name="routing_granularity",
    document="R",
    sections=("0x07A", "0x07B", "0x07C", "0x07D", "0x07F", "0x07F.1", "0x07G", "0x07G.1", "0x07H", "0x07J", "0x07L"),
    module=__name__,
    fixture=GranularityFixture,
    evaluate=evaluate,
    proves=(
        "how many logical gates each lifetime and placement needs",
        "masked against padding-blind pooling, row against flattened top-k normalisation",
        "a persisted prompt route, what its K/V key binds, which features a router may read, when a claim is sparse",
    ),
    does_not_prove=(
        "latency, or that any implementation skips an adapter",
        "the quality of a task search or of a learned router",
    ),
    own=("pooling.requests.1", "search", "prefix", "features", "executions"),
)
