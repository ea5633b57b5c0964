"""Numbers of identity, operator, training, sharing and merging (R 0x00F to 0x05) and the checks that assert them."""

from tests.oracles.ledger import Row, rows

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
            "dense_soft gradients (135 coordinates)": "4.02e-10",
            "selected_top2 gradients (135 coordinates)": "2.25e-10",
            "selected_top1 gradients (135 coordinates)": "1.88e-10",
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

ROWS: tuple[Row, ...] = ADAPTER_IDENTITY + ROUTED_OPERATOR + METHOD_TRAINING + SHARED_FACTOR + COMPOSITION_MERGE
