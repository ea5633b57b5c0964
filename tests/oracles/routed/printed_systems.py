"""Numbers of continual state, routing, runtime, composition and evaluation (R 0x06 to 0x0B) and their checks."""

from tests.oracles.ledger import Row, rows

CONTINUAL_STATE = (
    *rows("continual_state", "R 0x06A", {"task order": "sentiment topic qa", "a reorder is another state": "True"}),
    *rows(
        "continual_state",
        "R 0x06D",
        {"U^T A_t": "0.5 -0.25", "paper overlap loss": "0.3125", "paper overlap gradient": "1 -0.5 0"},
    ),
    *rows(
        "continual_state",
        "R 0x06E",
        {
            "code overlap loss": "0.75",
            "code overlap subgradient": "1 -1 0",
            "task gradient of A at B = 0": "0",
            "largest task gradient of B": "0.875",
        },
    ),
    *rows(
        "continual_state",
        "R 0x06F",
        {
            "scales": "1 2",
            "homogeneous cat error": "0",
            "heterogeneous naive cat error": "1.0",
            "scale encoded in the new block": "0",
            "serve, train on, roll back": "True False",
        },
    ),
    *rows(
        "continual_state",
        "R 0x06G",
        {
            "dimension and ranks": "3 1",
            "remaining orthogonal dimensions": "0",
            "a fourth task fits": "False",
        },
    ),
    *rows(
        "continual_state",
        "R 0x06H",
        {
            "branch logits": "0 1",
            "branch gates": "0.13447 0.36553 0.17488 0.47537",
            "smallest gate": "0.13447",
        },
    ),
    *rows(
        "continual_state",
        "R 0x06I",
        {
            "gates of exactly zero": "0",
            "task-1 rater before and after": "1 0 2",
            "drift from an old rater alone": "0.17426",
        },
    ),
    *rows(
        "continual_state",
        "R 0x06J",
        {
            "adapter, rater and continual parameters": "12 8 20",
            "frozen and trainable at task 3": "8 12",
            "branches and logits a row": "3 4",
        },
    ),
    *rows(
        "continual_state",
        "R 0x06K",
        {
            "evaluation matrix": "0.80 0.25 0.18 0.72 0.82 0.68 0.78 0.85",
            "baseline": "0.10 0.20 0.15",
            "final ACC": "0.770",
            "BWT terms": "-0.12 -0.04",
            "mean BWT": "-0.080",
            "FWT terms": "0.05 0.10",
            "mean FWT": "0.075",
            "forgetting a task": "0.12 0.04",
            "largest forgetting": "0.120",
        },
    ),
)

ROUTING_GRANULARITY = (
    *rows(
        "routing_granularity",
        "R 0x07A",
        {
            "B, S, L, P, J": "2 3",
            "logical gate entries": "3 6 12 36 72",
            "distinct gates over the batch": "3 6 12 36 72",
        },
    ),
    *rows(
        "routing_granularity",
        "R 0x07G.1",
        {
            "padded request": "2 0 100",
            "masks": "1 0",
            "pooled request": "1",
            "padding-blind mean": "34",
            "maximum difference": "33",
            "unpadded request under both means": "0.666667",
        },
    ),
    *rows(
        "routing_granularity",
        "R 0x07F.1",
        {
            "dense scalings": "0.70 0.20 0.10 0.60 0.30",
            "selected weights": "0.77778 0.22222 0 0.66667 0.33333",
            "row sums": "1.0",
            "flattened softmax": "0.31430 0.19063 0 0.28439 0.21068",
            "row sums of the flattened softmax": "0.50493 0.49507",
            "global selected sum": "1",
        },
    ),
    *rows("routing_granularity", "R 0x07F", {"cache and repair": "off none", "two passes over one cache": "False"}),
    *rows(
        "routing_granularity",
        "R 0x07G",
        {"refused shortcuts": "same_layer_output future_tokens test_labels mask_blind_mean"},
    ),
    *rows(
        "routing_granularity",
        "R 0x07L",
        {
            "decode steps that reuse the route": "4",
            "a route change is another K/V key": "True",
            "dense and selected branches": "3 2",
            "search evaluations a task": "12",
            "search evaluations a request": "0",
        },
    ),
    *rows(
        "routing_granularity",
        "R 0x07J",
        {"execution evidence": "dense_all_candidates trace not_verified", "sparse claims admitted": "True False"},
    ),
)

RUNTIME_EXECUTION = (
    *rows(
        "runtime_execution",
        "R 0x08A",
        {
            "teaching route": "0.75 0.25 0.6 0.4 0.5 0.8 0.2",
            "route occurrences": "8",
            "permutation": "0 3 6 2 5 7 1 4",
            "segment offsets": "0 3 6 8",
            "segment rows": "0 1 3 2",
            "occurrences with an overflow and dense": "7 12",
        },
    ),
    *rows(
        "runtime_execution",
        "R 0x08C",
        {
            "shared-A output": "-0.1875 0 -2.6 2.1 -0.375 2.25 -2.4 1.5",
            "FLOPs independent, shared, saved": "160 112 48",
            "saved by formula 2 (R - T) r d_in": "48",
            "preconditions of reuse": "storage version orientation input_row dropout_mask rank scale_placement between",
        },
    ),
    *rows(
        "runtime_execution",
        "R 0x08E",
        {
            "metadata bytes": "192",
            "bytes of Z_R and D_R": "128",
            "selected-factor copies, indexed and direct": "160 0",
        },
    ),
    *rows(
        "runtime_execution",
        "R 0x08F",
        {"prefill rows and occurrences": "128 256", "decode rows and occurrences": "16 32"},
    ),
    *rows(
        "runtime_execution",
        "R 0x08D",
        {
            "shared A packed gradients (38 coordinates)": "1e-08",
            "independent A packed gradients (50 coordinates)": "1e-08",
        },
    ),
    *rows("runtime_execution", "R 0x08B", {"packed against dense reference": "1e-14"}),
    *rows("runtime_execution", "R 0x08K", {"order inside a segment": "1e-14"}),
    *rows(
        "runtime_execution",
        "R 0x08G",
        {
            "a republished slot_generation": "adapters[1].slot_generation",
            "a route change is another K/V signature": "True",
        },
    ),
)

CROSS_CONTRACT = (
    *rows(
        "cross_contract",
        "R 0x09B",
        {
            "upstream reports that hold": "8",
            "program of fixture is the report": "8",
            "one changed file of a loop refuses it": "32",
            "loops": "2 3 4 5 6 7 8 9 adapter_identity runtime_execution",
        },
    ),
    *rows(
        "cross_contract",
        "R 0x09C",
        {"lanes": "shared_a_selected static_fusion o_lora_ordered am_lora_selector", "legal lanes": "4"},
    ),
    *rows(
        "cross_contract",
        "R 0x09D",
        {
            "base, router, plan and catalog": "teaching-base-r17 teaching-router-r9 41 31",
            "request and lane": "request-loop10-0001",
            "versions": "adapter-0-r5 adapter-1-r3 adapter-2-r8",
            "slot generations": "11 12 13",
            "pointer generations": "21 22 23",
            "one owner of shared A": "shared-A-storage-r17 17",
            "occurrences and segments": "8 3",
            "shared-A output of the request": "-0.1875 0.0000 -2.6000 2.1000 -0.3750 2.2500 -2.4000 1.5000",
            "FLOPs saved": "48",
            "shared-A finite-difference error": "7.11e-10",
        },
    ),
    *rows(
        "cross_contract",
        "R 0x09F",
        {
            "additivity residual norm": "0.326766",
            "cross-term norm": "1.0",
            "AM-LoRA branches a row": "3",
            "static merge is legal": "True False",
        },
    ),
    *rows(
        "cross_contract",
        "R 0x09G",
        {
            "plan generations": "41 42 43",
            "artifact versions": "adapter-1-r3 adapter-1-r4",
            "A(43) = A(41)": "True",
            "I_P(43) = I_P(41)": "False",
            "K/V 42 in 43, 41 in 43, 41 in 41": "False True",
        },
    ),
    *rows(
        "cross_contract",
        "R 0x09H",
        {
            "substitutions rejected": "8",
            "naive_heterogeneous_cat is rejected": "1.0",
            "reordered_tasks_under_old_id is rejected": "True",
        },
    ),
)

EVALUATION_PUBLICATION = (
    *rows(
        "evaluation_publication",
        "R 0x0AB",
        {
            "candidates, workloads, nuisance tuples": "6 4",
            "quality cells": "96",
            "a contrast with a missing cell": "None",
            "attempts kept": "infrastructure_failure numerical_failure",
        },
    ),
    *rows(
        "evaluation_publication",
        "R 0x0AA",
        {
            "candidates": "mixed_rank16 oracle_task_id uniform_shared_a learned_shared_a_top2 static_fusion_child"
            " am_lora_dense",
            "candidate identities": "6",
        },
    ),
    *rows(
        "evaluation_publication",
        "R 0x0AC",
        {
            "mean quality": "0.7175 0.7725 0.7150 0.7575 0.7375 0.7450",
            "paired differences": "0.0000 0.0550 -0.0025 0.0400 0.0200 0.0275",
        },
    ),
    *rows(
        "evaluation_publication",
        "R 0x0AD",
        {
            "declared rule": "target higher candidate_order",
            "stored scalars, independent and shared A": "66 42",
            "outcome of the one opening": "no_release",
        },
    ),
    *rows(
        "evaluation_publication",
        "R 0x0AE",
        {
            "route entropy": "0 1.098612",
            "load CV": "0",
            "Jaccard stability": "1",
            "materialisation ratio": "1",
        },
    ),
    *rows(
        "evaluation_publication",
        "R 0x0AF",
        {
            "number of phase ledgers": "12",
            "terms of a request": "8",
            "learned_shared_a_top2 prefill and decode": "132 22",
            "static_fusion_child prefill and decode": "112 12",
        },
    ),
    *rows("evaluation_publication", "R 0x0AG", {"ACC, BWT, FWT": "0.770 -0.080 0.075"}),
    *rows(
        "evaluation_publication",
        "R 0x0AH",
        {
            "failures": "36",
            "four failures a loop": "2 3 4 5 6 7 8 9 10",
            "coordinates of cross_contract": "10",
            "failures recovered by their owner": "36",
        },
    ),
)

ROWS: tuple[Row, ...] = (
    CONTINUAL_STATE + ROUTING_GRANULARITY + RUNTIME_EXECUTION + CROSS_CONTRACT + EVALUATION_PUBLICATION
)
