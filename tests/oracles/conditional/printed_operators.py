"""Numbers of attention experts, depth and their composition (C 0x02 to 0x06) and the checks that assert them."""

from tests.oracles.ledger import Row, rows

MOA = (
    *rows("moa", "C 0x02A", {"A shape": "1 2 2 3", "map elements": "12"}),
    *rows(
        "moa",
        "C 0x02C",
        {
            "G": "0 1",
            "Z": "0.80",
            "w": "0.625 0.375",
            "p": "0.50 0.30 0.20",
            "c": "2.0 -1.0",
            "stopped-denominator dL/dlogit": "0.8125 -0.6375 -0.1750",
            "ordinary dL/dlogit": "0.703125 -0.703125 0.0",
        },
    ),
    *rows(
        "moa",
        "C 0x02E",
        {"parameters, paper": "32", "parameters, checkpoint": "38", "parameters, active a token": "30"},
    ),
    *rows(
        "moa",
        "C 0x02F",
        {
            "MACs by operation": "12 24 32 24 24",
            "MACs, named": "116",
            "symmetric T = 2, paper convention": "64",
            "symmetric T = 2, named convention": "92",
        },
    ),
    *rows("moa", "C 0x02G", {"K shape: no expert axis": "1 3 2"}),
    *rows("moa", "C 0x02K", {"S_q, S_kv, d, d_h, E, k": "2 3 2 2 3 2"}),
)

SWITCHHEAD = (
    *rows(
        "switchhead",
        "C 0x03B",
        {"heads by destination": "0 1 2 3", "union of required source projections": "0 1 2 3"},
    ),
    *rows("switchhead", "C 0x03E", {"A shape": "1 2 2 3"}),
    *rows(
        "switchhead",
        "C 0x03F",
        {
            "grad W_Q (8 coordinates)": "5e-11",
            "grad W_K (8 coordinates)": "5e-11",
            "grad W_V (24 coordinates)": "5e-11",
            "grad W_O (24 coordinates)": "5e-11",
            "grad R_S (12 coordinates)": "5e-11",
            "grad R_D (12 coordinates)": "5e-11",
        },
    ),
    *rows("switchhead", "C 0x03G", {"map elements": "12", "map elements of a dense bank": "36"}),
    *rows(
        "switchhead",
        "C 0x03H",
        {"MACs": "268", "parameters": "88", "parameters: Q/K, V/O, routers": "16 48 24"},
    ),
    *rows("switchhead", "C 0x03N", {"S_q, S_kv, d, H_A, E, k_S, k_D, d_h": "2 3 2 2 3 2 2 2"}),
)

MOD_TRAINING = (
    *rows(
        "mod_training",
        "C 0x04D",
        {
            "valid scores": "0.50 -0.30 0.20 0.10 0.30 0.70 -0.10 0.60 0.40 1.00",
            "padded row of sequence 1": "100 100 100 100",
            "score order": "5 0 4 1 2",
            "execution order": "0 4 5 1 2",
            "selected positions": "10 14 15 21 22 24",
            "padding is never chosen": "False",
        },
    ),
    *rows(
        "mod_training",
        "C 0x04F",
        {
            "smallest route margin": "0.1",
            "grad w against differences (4 coordinates)": "3.2e-9",
            "identity and router branches of grad X (24 coordinates)": "3.2e-9",
        },
    ),
    *rows("mod_training", "C 0x04G", {"linear and map ratios": "0.5 0.25"}),
    *rows(
        "mod_training",
        "C 0x04H",
        {
            "Q/K/V/O MACs, dense and routed": "768 384",
            "QK^T and AV MACs, dense and routed": "576 144",
            "MLP MACs, dense and routed": "576 288",
            "router MACs": "48",
            "gate multiplies": "24",
            "block MACs, dense and routed": "1920 816",
            "rho": "0.5",
            "block ratio": "0.425",
            "ratio with the router": "0.45",
            "payload: scores, ids, gather, scatter": "24 24 96 96",
        },
    ),
)

MOD_CAUSAL = (
    *rows("mod_causal", "C 0x05A", {"witness and later logits": "-0.14 0.81 0.79"}),
    *rows("mod_causal", "C 0x05B", {"C": "2"}),
    *rows("mod_causal", "C 0x05C", {"direct gradient in w, b and X (35 coordinates)": "3e-11"}),
    *rows(
        "mod_causal",
        "C 0x05D",
        {"stopped input: VJP into X": "0", "predictor gradient with the payload held (35 coordinates)": "3e-11"},
    ),
    *rows(
        "mod_causal",
        "C 0x05F",
        {
            "valid rows and positives": "15 4",
            "thresholds": "0.50 0.55 0.60",
            "TP": "4 4 1",
            "FP": "4 1 0",
            "TN": "7 10 11",
            "FN": "0 0 3",
            "selected": "8 5 1",
            "drift FP - FN": "4 1 -3",
            "precision": "0.50 0.80 1.00",
            "recall": "1.00 1.00 0.25",
            "accuracy": "0.733 0.933 0.800",
            "always skip: correct rows of all": "11 15",
            "always skip: accuracy": "0.733",
        },
    ),
)

MOD_SPARSE_KV = (
    *rows(
        "mod_sparse_kv",
        "C 0x05M",
        {
            "positions": "10 11 12 13 14 15",
            "stored positions": "10 11 12 13 14 15",
            "compact slots": "0 1 2 3",
            "rows a layer at T = 6": "4 4 4 0",
            "rows a layer at T = 4": "3 2 2 0",
            "rows a layer at T = 5": "3 3 3 0",
            "empty layer: six closed outcomes": "ABSENT_BY_ROUTE",
            "global frontier": "6",
        },
    ),
    *rows(
        "mod_sparse_kv",
        "C 0x05N",
        {
            "visible to the last token": "10 11 12 13 14 15",
            "position of the last query": "15",
            "its slot would say": "3",
        },
    ),
    *rows("mod_sparse_kv", "C 0x05O", {"token is not published": "False", "one outcome a layer": "4"}),
    *rows(
        "mod_sparse_kv",
        "C 0x05P",
        {
            "prefill handed to decode": "numerical_contract frozen_trace route_rule",
            "each handoff condition refuses alone": "delta_gate decisions",
        },
    ),
    *rows(
        "mod_sparse_kv",
        "C 0x05Q",
        {
            "manifest fields": "12",
            "each field guards alone": "model_revision weight_transform_revision predictor_revision "
            "route_policy_revision logit_threshold comparator position_contract cache_abi token_prefix side_input "
            "isolation_namespace route_trace",
            "refused consumers": "logit_threshold predictor_revision route_trace",
        },
    ),
    *rows(
        "mod_sparse_kv",
        "C 0x05R",
        {
            "staged at the fault": "ABSENT_BY_ROUTE PRESENT_KV 14 2",
            "predecessor digest is unchanged": "True",
            "shared prefix": "5",
            "final memberships": "True False",
            "parent rows": "4 4 4 0",
            "child rows": "3 4 4 0",
            "rows after rollback to T = 4": "3 2 2 0",
            "recomputed decisions and rows": "deterministic_model frozen_decision cache_only",
            "late completion of the fenced generation": "False",
        },
    ),
    *rows(
        "mod_sparse_kv",
        "C 0x05S",
        {
            "executed layer-tokens": "12 24",
            "one row": "16",
            "dense payload": "384",
            "sparse payload": "192",
            "positions, bitmap, offsets": "24 3 20",
            "named bytes": "239",
            "payload ratio": "0.5",
        },
    ),
)

MODE_COMPOSITION = (
    *rows("mode_composition", "C 0x06D.1", {"a full-output no-op gives 2u": "True"}),
    *rows("mode_composition", "C 0x06D.2", {"top-1 selected softmax trains no router": "0.0"}),
    *rows(
        "mode_composition",
        "C 0x06E",
        {
            "three residual-looking outcomes and an expert": "depth_skip no_op overflow zero",
            "three causes stay distinct": "3",
        },
    ),
    *rows("mode_composition", "C 0x06F", {"staged load denominator": "2"}),
    *rows("mode_composition", "C 0x06G.1", {"parameters, staged and integrated": "30 30", "p_mlp d_ff": "6"}),
    *rows("mode_composition", "C 0x06G.2", {"staged MACs": "88"}),
    *rows("mode_composition", "C 0x06G.3", {"R_real": "3", "integrated MACs": "188"}),
    *rows(
        "mode_composition",
        "C 0x06J",
        {
            "S, d, C_D, E": "4 2 2 2",
            "depth rows and skipped rows": "1 3 0 2",
            "candidate positions": "10 11 12 13",
            "staged attention positions": "11 13",
            "expert candidates": "2 4",
            "integrated paths": "2",
            "staged K/V": "absent present",
            "integrated K/V": "present",
        },
    ),
)

ROWS: tuple[Row, ...] = MOA + SWITCHHEAD + MOD_TRAINING + MOD_CAUSAL + MOD_SPARSE_KV + MODE_COMPOSITION
