"""Granularity's traps: padding in a mean, a flattened softmax, a future feature, a mask called sparse (R 0x07)."""

import json
import math
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.mutation import rejection
from oracles.registry import load
from oracles.routed.routing_granularity import (
    Execution,
    Extents,
    Policy,
    Prompt,
    XLora,
    available,
    logical_entries,
    may_share_cache,
    pooled,
    selected_rows,
    sparse_claim,
    visited_entries,
)

SIZE = st.integers(1, 4)
AXES = st.lists(st.sampled_from(["request", "token", "layer", "matrix"]), unique=True)
ROWS = st.lists(st.lists(st.floats(-4.0, 4.0), min_size=3, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize(
    ("place", "value", "check"),
    [
        (("pooling", "policy"), "padding_blind", "pooled request"),
        (("pooling", "requests", 0, "mask"), [1, 1, 1], "masks"),
        (("xlora", "normalization"), "flattened", "selected weights"),
        (("xlora", "use_cache"), "shared", "cache and repair"),
        (("policies", 2, "varies"), ["request", "token"], "varying axes"),
        (("prefix", "decode_steps"), 5, "decode steps that reuse the route"),
        (("executions", 1, "trace"), [0, 2], "execution evidence"),
        (("features", 8, "feature"), "causal_prefix", "features asked for"),
        (("executions", 3, "selected"), [3, 0], "contract"),
    ],
)
def test_a_wrong_choice_fails_the_check_of_its_step(place: tuple[str | int, ...], value: object, check: str) -> None:
    oracle = load("routing_granularity")
    document = json.loads(oracle.fixture_bytes())
    *path, last = place
    reduce(lambda inner, step: inner[step], path, document)[last] = value
    assert rejection(oracle, document) == check


@given(SIZE, SIZE, SIZE, SIZE, SIZE, AXES)
def test_the_entry_formula_counts_the_distinct_gates(b: int, s: int, n: int, p: int, j: int, axes: list[str]) -> None:
    extents = Extents(request=b, token=s, layer=n, matrix=p, adapters=j)
    policy = Policy.model_validate_json(json.dumps({"name": "task", "varies": axes}))
    assert logical_entries(extents, policy) == visited_entries(extents, policy)


@given(ROWS, st.floats(-1e3, 1e3))
def test_a_masked_mean_never_sees_its_padding(rows: tuple[tuple[float, ...], ...], sentinel: float) -> None:
    n = len(rows)
    padded = Prompt.model_validate({"rows": (*rows, (sentinel,) * 3), "mask": (1,) * n + (0,)})
    plain = Prompt.model_validate({"rows": rows, "mask": (1,) * n})
    assert pooled(padded, "masked") == pytest.approx(pooled(plain, "padding_blind"))


def test_the_flattened_softmax_of_one_row_is_normalised_and_still_not_the_row_weights() -> None:
    xlora = XLora(dense=((0.7, 0.2, 0.1),), k=2, normalization="row", use_cache="off", repair="none")
    flattened = selected_rows(xlora, "flattened")
    assert math.isclose(math.fsum(flattened[0]), 1.0)
    assert flattened[0][0] < selected_rows(xlora, "row")[0][0]


def test_a_trace_of_every_candidate_or_no_trace_is_no_sparse_claim() -> None:
    def execution(trace: list[int], evidence: str) -> Execution:
        document = {"logits": [1.0, 0.0], "selected": [0], "trace": trace, "evidence": evidence}
        return Execution.model_validate_json(json.dumps(document))

    assert sparse_claim(execution([0], "trace"))
    assert not sparse_claim(execution([0, 1], "trace"))
    assert not sparse_claim(execution([0], "not_verified"))


def test_features_that_do_not_exist_yet_are_not_available() -> None:
    assert available("token", "causal_prefix")
    assert not available("token", "same_layer_output")
    assert not available("prompt", "future_tokens")
    assert may_share_cache("shared", "recompute_second_pass")
    assert not may_share_cache("shared", "none")
