"""Numbers of routed, shared and continual adapters (R) and the checks that assert them."""

from tests.oracles.ledger import Row, rows

COMPOSITION_MERGE = (
    *rows(
        "composition_merge",
        "R 0x05B",
        {"D": "1 0 0 -0.5", "cat reconstruction error": "0", "input ranks": "1", "composed rank": "2"},
    ),
    *rows("composition_merge", "R 0x05C", {"singular values": "1 0.5", "rank-1 Frobenius error": "0.5"}),
    *rows(
        "composition_merge",
        "R 0x05D",
        {
            "B_lin A_lin": "1 -0.7071 0.7071 -0.5",
            "cross-term norm": "1.0",
            "gauge of the second adapter": "2 0.5",
            "factor-linear change under the gauge": "0.7071",
        },
    ),
    *rows(
        "composition_merge",
        "R 0x05E",
        {"TIES retained coordinates": "2", "TIES signs": "1 -1 -1 0", "TIES merge": "4 -3 -2.5 0"},
    ),
    *rows(
        "composition_merge",
        "R 0x05F",
        {"DARE expectation error": "0", "DARE sample": "4 0 1 0", "DARE sample max difference": "3"},
    ),
    *rows(
        "composition_merge",
        "R 0x05G",
        {
            "gates": "0.7311 0.2689 0.5",
            "additivity residual": "-0.2311",
            "additivity residual norm": "0.3268",
            "largest difference of effective matrices": "0.4621",
        },
    ),
    *rows(
        "composition_merge",
        "R 0x05H",
        {
            "Q(W+D1+D2)": "-0.75 0 0.5",
            "Q(W)+D1+D2": "-0.85 0.05 0.5",
            "Q(Q(W+D1)+D2)": "-1 0 0.5",
            "quantize before or after adding": "0.10",
            "sequential against one-shot": "0.25",
            "rounded unmerge base error": "0.10",
        },
    ),
)

ROUTED_OPERATOR = (
    *rows(
        "routed_operator",
        "R 0x02D",
        {
            "coordinates a policy": "135",
            "selected_top2 ids": "2 0 1",
            "selected_top1 ids": "2 1 0",
            "top-2 boundary margin": "0.85",
            "materialized expert rows": "9 6 3",
            "dense_soft gradients (135 coordinates)": "1e-08",
            "selected_top2 gradients (135 coordinates)": "1e-08",
            "selected_top1 gradients (135 coordinates)": "1e-08",
            "saturated logits": "16.0 0.0 -16.0",
            "first saturated gate": "0.999999887",
            "second saturated gate": "1.13e-7",
            "third saturated gate": "1.27e-14",
            "weakest gradient of a saturated router": "5e-16",
            "route fixed on expert 0 gives dZ = 0": "0",
            "experts that receive a gradient": "True False",
            "topJ equals dense": "0",
        },
    ),
    *rows(
        "routed_operator",
        "R 0x02C",
        {
            "top-1 gives dZ = 0": "0",
            "perturbations keep the support": "True",
            "ties: logit descending, then candidate order": "1 2",
        },
    ),
    *rows("routed_operator", "R 0x02A", {"row sums of dZ": "1e-16"}),
)

SHARED_FACTOR = (
    *rows(
        "shared_factor",
        "R 0x04B",
        {
            "factor parameters": "42 26 30",
            "router parameters": "12",
            "factors and router": "54 38 42",
            "weight and two moments": "126 78 90",
            "factor budget": "120",
            "largest rank under the budget": "5 9 8",
        },
    ),
    *rows(
        "shared_factor",
        "R 0x04F",
        {
            "FLOPs of A once and in the loop": "48 144",
            "FLOPs of readouts and router": "108 72",
            "hoisting under identity dropout": "1e-15",
        },
    ),
    *rows(
        "shared_factor",
        "R 0x04C",
        {"rank of the sum, of shared A, of shared B": "3 2", "ranks of the token matrices": "2"},
    ),
    *rows(
        "shared_factor",
        "R 0x04D",
        {"clone forward difference": "0", "shared dA is the sum of clone gradients": "1e-15"},
    ),
    *rows("shared_factor", "R 0x04A", {"the gauge leaves the output": "2e-15"}),
    *rows("shared_factor", "R 0x04E", {"first gradients of A and R": "0"}),
    *rows(
        "shared_factor",
        "R 0x04H",
        {"coordinates of the three variants": "170"}
        | {
            f"{variant} gradients ({coordinates} coordinates)": "8e-08"
            for variant, coordinates in (("independent", 66), ("shared_A", 50), ("shared_B", 54))
        },
    ),
)

METHOD_TRAINING = (
    *rows(
        "method_training",
        "R 0x03E",
        {
            "six training states": "loramoe_paper loramoe_pinned mixture_stage1 mixture_stage2 mole_paper mole_pinned",
            "stage parent proves no moments": "not_restored",
            "mole_pinned trains": "gate.wg.weight",
        },
    ),
    *rows(
        "method_training",
        "R 0x03F",
        {
            "mu": "0.517849",
            "population and sample variance": "0.071864 0.082130",
            "N = B J": "8",
            "paper and code objective": "0.138774 0.306265",
            "layers and projections": "gate_proj up_proj down_proj",
        },
    ),
    *rows("method_training", "R 0x03G", {"layer choices": "2 0", "vote and last router": "2 0"}),
    *rows(
        "method_training",
        "R 0x03J",
        {
            "domain histogram of the window": "1",
            "classification loss": "0.694150",
            "eta times classification": "0.277660",
            "mean gates q": "0.326606 0.340376 0.333018",
            "balance term": "3.296264",
            "LoRAMoE paper form (16 coordinates)": "3.70e-11",
            "LoRAMoE code form (16 coordinates)": "1.18e-10",
            "Mixture classification (27 coordinates)": "4.17e-11",
            "MoLE credit plus balance (9 coordinates)": "1.30e-10",
        },
    ),
    *rows(
        "method_training",
        "R 0x03I",
        {
            "objective and reduction axes": "nll_plus_eta_classification batch layer",
            "selection policy": "router_vote lowest_index",
            "frozen names of stage 2": "base.weight",
            "detached candidates leave x only its base path (21 coordinates)": "1e-09",
        },
    ),
    *rows(
        "method_training",
        "R 0x03H",
        {"MoLE temperature (1 coordinates)": "1e-09", "a detached statistic moves no logit (9 coordinates)": "1e-09"},
    ),
    *rows(
        "method_training",
        "R 0x00F.3",
        {"label, router input and inference label": "loss_target sequence_representation absent"},
    ),
)

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

ADAPTER_IDENTITY = (
    *rows(
        "adapter_identity",
        "R 0x00F.5",
        {
            "d_in, d_out, r, J": "6 5 2 3",
            "factor scalars: independent, shared A, shared B": "66 42 46",
            "factor scalars a task": "22",
            "scalars of the stored pair": "22",
        },
    ),
    *rows(
        "adapter_identity",
        "R 0x00F.1",
        {
            "factor scale alters": "pool route",
            "route k alters": "route",
            "equal shapes on another base: shape, identity": "True False",
            "one role: shapes agree, letters do not": "True False",
        },
    ),
    *rows("adapter_identity", "R 0x00F.4", {"tasks": "data-0 data-1 data-2"}),
    *rows("adapter_identity", "R 0x00F.2", {"families and controls": "8"}),
    *rows("adapter_identity", "R 0x00F.3", {"records with training labels": "loramoe mixture_of_loras"}),
    *rows(
        "adapter_identity",
        "R 0x00F.6",
        {
            "execution evidence": "dense_all_candidates not_verified",
            "refused fields": "physical_rank slot page_address kernel latency throughput",
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

ROWS: tuple[Row, ...] = (
    ADAPTER_IDENTITY
    + ROUTED_OPERATOR
    + METHOD_TRAINING
    + SHARED_FACTOR
    + COMPOSITION_MERGE
    + CONTINUAL_STATE
    + ROUTING_GRANULARITY
    + RUNTIME_EXECUTION
    + CROSS_CONTRACT
)
