"""Thirty failures of conditional compute, each with invariant, executable detector, consequence and owner (C 0x0BA).

The first eighteen are the printed rows of C 0x0BC; the other twelve are taken from the failure labs C 0x03M to
0x08K and worded by us. A detector is one substituted fixture field and the check that must notice it.
"""

import json
from functools import reduce
from typing import Any, Literal, NamedTuple

import pytest

from oracles.mutation import rejection
from oracles.registry import load

Owner = Literal[
    "operator",
    "operator and cache",
    "operator and positions",
    "cache runtime",
    "source gate",
    "measurement",
    "release gate",
]


class Failure(NamedTuple):
    """One record; `path` and `value` are the substitution, `check` is what rejects it."""

    source: str
    invariant: str
    oracle: str
    path: str
    value: object
    check: str
    consequence: str
    owner: Owner


PRINTED = (
    Failure(
        "C 0x0BC",
        "axis and stable identity do not collapse into payload shape",
        "family_contracts",
        "event/original_position",
        3,
        "event",
        "route or cache provenance disappears",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "MoA Q/O expert and stopped-denominator gradient are preserved",
        "moa",
        "router_row/denominator",
        "differentiated",
        "stopped-denominator dL/dlogit",
        "wrong projection or router training",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "SwitchHead source-V and destination-O populations stay separate",
        "switchhead",
        "selection",
        "destination_reuses_source",
        "destination ids",
        "wrong map, route work, or cache payload",
        "operator and cache",
    ),
    Failure(
        "C 0x0BC",
        "MoD top-C is per valid sequence and gathered rows retain positions",
        "mod_training",
        "policy/domain",
        "all_rows",
        "score order",
        "wrong membership, RoPE, or causal mask",
        "operator and positions",
    ),
    Failure(
        "C 0x0BC",
        "selected helper returns a delta, not a residualized block output",
        "mod_training",
        "policy/helper",
        "full_output",
        "selected rows of Y",
        "residual is added twice",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "noncausal teacher is not reused at decode",
        "mod_causal",
        "X/0/5",
        [-1.0, -1.0],
        "witness and later logits",
        "future leak or impossible route",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "predictor membership does not replace the raw model-path gate",
        "mod_causal",
        "delta_gate",
        "predictor_probability",
        "update of row 3: r times the delta",
        "causalization changes the model",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "skipped depth row stages ABSENT_BY_ROUTE",
        "mod_sparse_kv",
        "membership/3/5",
        True,
        "stored positions",
        "fabricated K/V becomes visible",
        "cache runtime",
    ),
    Failure(
        "C 0x0BC",
        "sparse slot is not semantic position",
        "mod_sparse_kv",
        "rope_position",
        "slot",
        "position of the last query",
        "position-dependent attention drifts",
        "operator and cache",
    ),
    Failure(
        "C 0x0BC",
        "route-aware token transaction closes atomically",
        "mod_sparse_kv",
        "publication",
        "layer_by_layer",
        "predecessor digest is unchanged",
        "partial cross-layer prefix is published",
        "cache runtime",
    ),
    Failure(
        "C 0x0BC",
        "staged skip, integrated no-op, and overflow drop remain distinct",
        "mode_composition",
        "expert_capacity",
        2,
        "admitted under capacity 1",
        "wrong attention, FFN, or K/V ledger",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "paper, repository, and dependency are separate evidence surfaces",
        "multimodal_stage",
        "admission",
        "by_probability",
        "rows that lose both routes",
        "unexecuted policy is attributed to code",
        "source gate",
    ),
    Failure(
        "C 0x0BC",
        "padding rows remain in the pinned Phi router population",
        "multimodal_stage",
        "population",
        "valid_rows",
        "materialised router rows",
        "route and objective denominator is understated",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "cloned experts require admitted normalized routes for continuity",
        "multimodal_stage",
        "combine",
        "raw_survivors",
        "cf 1.5: clone error",
        "complete route loss is hidden",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "all twenty-one fields define method identity",
        "family_contracts",
        "contracts/moa/kv_payload",
        "head_K_mixed_V",
        "distances",
        "same-shape methods are substituted",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "unlike work-vector units stay separate",
        "family_contracts",
        "work/moe_llava/executed",
        12,
        "work of moe_llava",
        "fabricated speed ranking",
        "measurement",
    ),
    Failure(
        "C 0x0BC",
        "a sensitivity point preserves the method signature",
        "sensitivity",
        "contract/route_weight",
        "raw_sigmoid",
        "contract of the curve",
        "different methods enter one curve",
        "operator",
    ),
    Failure(
        "C 0x0BC",
        "synthetic counts remain synthetic",
        "sensitivity",
        "evidence/latency_measured",
        True,
        "contract",
        "unsupported quality or latency claim",
        "release gate",
    ),
)

OURS = (
    Failure(
        "C 0x03M",
        "selected SwitchHead gates stay unnormalised sigmoids",
        "switchhead",
        "gate",
        "selected_softmax",
        "no row of selected gates sums to 1",
        "gates compete in backward",
        "operator",
    ),
    Failure(
        "C 0x04K",
        "selected rows execute in the order of their positions",
        "mod_training",
        "policy/execution",
        "by_score",
        "execution order",
        "a triangle over score order shows the future",
        "operator and positions",
    ),
    Failure(
        "C 0x04K",
        "the raw router scalar weights the delta",
        "mod_training",
        "policy/gate",
        "selected_softmax",
        "selected rows of Y",
        "rows compete for the router gradient",
        "operator",
    ),
    Failure(
        "C 0x04K",
        "a skipped row is an exact identity",
        "mod_training",
        "policy/skipped",
        "times_score",
        "skipped rows are exact identities",
        "skip path changes and trains the router",
        "operator",
    ),
    Failure(
        "C 0x05J",
        "the auxiliary predictor reads a detached input",
        "mod_causal",
        "predictor_input",
        "attached",
        "stopped input: VJP into X",
        "the backbone receives an unintended gradient",
        "operator",
    ),
    Failure(
        "C 0x05U",
        "rollback truncates each layer to its own rows",
        "mod_sparse_kv",
        "rollback",
        "token_count",
        "rows after rollback to T = 4",
        "sparse layers keep rows of undone tokens",
        "cache runtime",
    ),
    Failure(
        "C 0x05U",
        "equal tokens under another route trace are no reusable prefix",
        "mod_sparse_kv",
        "consumers/2/value",
        "trace-a",
        "refused consumers",
        "layer streams of another route history are read",
        "cache runtime",
    ),
    Failure(
        "C 0x06K",
        "the depth gate weights attention and expert delta",
        "mode_composition",
        "depth_gate",
        "attention_only",
        "staged Y",
        "the expert delta escapes the outer decision",
        "operator",
    ),
    Failure(
        "C 0x06K",
        "the staged expert router reads post-attention rows",
        "mode_composition",
        "expert_input",
        "gathered",
        "staged Y",
        "block order changes",
        "operator",
    ),
    Failure(
        "C 0x06K",
        "staged expert load counts selected rows",
        "mode_composition",
        "load_population",
        "all_rows",
        "staged expert load",
        "depth sparsity looks like expert balance",
        "measurement",
    ),
    Failure(
        "C 0x07M",
        "the pinned second choice follows the stored noise",
        "multimodal_stage",
        "second_choice",
        "second_largest",
        "second choices",
        "a replay takes other routes",
        "source gate",
    ),
    Failure(
        "C 0x08K",
        "an integrated no-op keeps its attention row",
        "family_contracts",
        "contracts/integrated/kv_row_policy",
        "sparse_receipts",
        "distances",
        "historical attention state is deleted",
        "cache runtime",
    ),
)

FAILURES = PRINTED + OURS


def substituted(failure: Failure) -> Any:
    """The oracle's fixture with the one field replaced."""
    document = json.loads(load(failure.oracle).fixture_bytes())
    *parents, last = (int(step) if step.isdigit() else step for step in failure.path.split("/"))
    place = reduce(lambda value, step: value[step], parents, document)
    assert place[last] != failure.value
    place[last] = failure.value
    return document


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.invariant)
def test_the_detector_rejects_the_substitution_by_name(failure: Failure) -> None:
    assert rejection(load(failure.oracle), substituted(failure)) == failure.check


def test_thirty_failures_are_recorded_and_eighteen_of_them_are_printed() -> None:
    assert (len(PRINTED), len(FAILURES)) == (18, 30)
    assert len({failure.invariant for failure in FAILURES}) == 30


def test_every_conditional_oracle_detects_a_failure() -> None:
    assert len({failure.oracle for failure in FAILURES}) == 9
