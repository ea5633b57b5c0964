"""Numbers of the low-rank design space (V) and the checks that assert them."""

from tests.oracles.ledger import Row, rows

NF4 = (
    *rows("nf4", "V 0x02A", {"four separate fields": "True nf4 bfloat16"}),
    *rows(
        "nf4",
        "V 0x02B",
        {
            "codebook": "-1.0000000 -0.6961928 -0.5250731 -0.3949175 -0.2844414 -0.1847734 -0.0910500 0.0000000 "
            "0.0795803 0.1609302 0.2461123 0.3379152 0.4407098 0.5626170 0.7229568 1.0000000"
        },
    ),
    *rows(
        "nf4",
        "V 0x02C",
        {
            "absmax of the blocks": "1.00 0.50 0.75",
            "codes": "0 2 7 14 11 6 13 0 8 11 4 15",
            "packed bytes": "32 231 107 13 184 244",
            "dequantised rows": "-1 -0.5250731 0 0.7229568 0.1689576 -0.045525 0.2813085 -0.5 0.059685225 0.2534364 "
            "-0.21333105 0.75",
            "swapped nibbles, first block": "-0.5250731 -1 0.7229568 0",
        },
    ),
    *rows(
        "nf4",
        "V 0x02D",
        {
            "scale mean and absmax": "0.75 0.25",
            "scale codes": "127 -127 0",
            "reconstructed scales": "1 0.5 0.75",
            "single scale bits a weight": "0.5",
            "nested scale bits a weight": "0.126953125",
            "bits a weight saved": "0.373046875",
        },
    ),
    *rows(
        "nf4",
        "V 0x02E",
        {"adapter scalars": "14", "logical moment bytes": "112", "paged snapshot": "56 112"},
    ),
)

ADALORA = (
    *rows("adalora", "V 0x03B", {"scale of q_proj": "5.333315555615"}),
    *rows("adalora", "V 0x03E", {"the paper's printed equation at ti": "10.111"}),
    *rows(
        "adalora",
        "V 0x03F",
        {"tied scores": "10 8 5 5", "strict threshold underfills": "True False"},
    ),
    *rows(
        "adalora",
        "V 0x03H",
        {
            "scores in order": "5.0625 3.515625 3.375 2.25 1.6875 0.5625",
            "triplets in order": "v_proj q_proj 0 1 2",
            "steps": "0 2 3 4 8 9",
            "budgets": "6 6 4 3 3 3",
            "mask events": "4 8 9",
            "rank pattern": "True False",
            "active ranks": "1 2",
        },
    ),
    *rows(
        "adalora",
        "V 0x03I",
        {
            "factor, score and moment scalars": "30 90 60",
            "compact scalars": "15",
            "scalars at three resume points": "90 180 15",
        },
    ),
)

RSLORA = (
    *rows("rslora", "V 0x04C", {"first grad B at rank 4, p = 1/2": "0.25 -0.5 1"}),
    *rows("rslora", "V 0x04E", {"exponents": "1 0.5 0.25 2"}),
    *rows(
        "rslora",
        "V 0x04F",
        {
            "ranks": "4 16 64 256",
            "gamma^2 r, LoRA": "0.25 0.0625 0.015625 0.00390625",
            "gamma^2 r, rsLoRA": "1.0",
            "gamma^2 r, weak divisor": "2.0 4.0 8.0 16.0",
            "gamma^2 r, over-divisor": "0.015625 0.000244140625 0.000003814697 0.000000059605",
            "rank 256 over rank 4, LoRA": "0.015625",
            "rank 256 over rank 4, rsLoRA": "1.0",
            "rank 256 over rank 4, weak divisor": "8.0",
            "rank 256 over rank 4, over-divisor": "0.000003814697",
            "rank-stable delta": "-0.03125 0.0625 -0.125",
            "rank-stable input gradient": "-0.078125 0.15625",
        },
    ),
    *rows(
        "rslora",
        "V 0x04I",
        {
            "effective rank and alpha": "q_proj 64 16 v_proj 16 32 o_proj 4 32",
            "LoRA scales": "0.25 2 8",
            "rsLoRA scales": "2 8 16",
        },
    ),
    *rows(
        "rslora",
        "V 0x04J",
        {
            "classic conversion": "4 8",
            "rank-stable converted rank": "4",
            "rank-stable converted alpha": "5.656854",
            "patterns refused, classic and rank-stable": "False True",
            "classic conversion doubles patterns": "4 8",
        },
    ),
)

LORA_PLUS = (
    *rows(
        "lora_plus",
        "V 0x05B",
        {
            "stable and efficient exponents": "0.0",
            "equal rates: B shrinks, A z grows": "-0.5 0.5",
            "exponents of the rates": "-1.0 1.0",
        },
    ),
    *rows("lora_plus", "V 0x05C", {"eta_A, lambda and eta_B": "1e-4 16 1.6e-3"}),
    *rows(
        "lora_plus",
        "V 0x05D",
        {
            "groups": "proj.lora_A embed.lora_embedding_A proj.lora_B proj.bias",
            "frozen parameters are in no group": "proj.weight",
            "rates and decays": "1e-4 1.6e-3 1e-6 0.0",
            "groups of the pinned code": "embed.lora_embedding_A proj.lora_magnitude_vector",
        },
    ),
    *rows("lora_plus", "V 0x05E", {"scheduled ratios": "16.0"}),
    *rows("lora_plus", "V 0x09F", {"group of a DoRA magnitude": "groupB_no_decay groupB"}),
)

LORA_FA = (
    *rows("lora_fa", "V 0x05G", {"singular A is refused": "True", "descent <g_B, H_B*> at s = 1.0": "20.875"}),
    *rows(
        "lora_fa",
        "V 0x05H",
        {
            "AAt": "2 0 4",
            "P_A": "0.5 0 1",
            "dense gradient g_W": "1 2.5 0.5 -2 -3 5",
            "g_W P_A": "0.75 2.5 1.5 -3",
            "s H_B* A at s = 1.0": "0.75 2.5 1.5 -3",
            "s H_B* A at s = 0.5": "0.75 2.5 1.5 -3",
            "H_B* at s = 1": "0.75 1.25 1.5 -1.5",
            "projected, residual and whole energy": "20.875 24.625 45.5",
        },
    ),
    *rows(
        "lora_fa",
        "V 0x05I",
        {
            "LoRA parameters, activation and moment bytes": "10 30 80",
            "LoRA-FA parameters, activation and moment bytes": "4 12 32",
            "LoRA-FB parameters, activation and moment bytes": "6 18 48",
        },
    ),
    *rows("lora_fa", "V 0x05J", {"regularization 1e-8 moves H_B*": "7.5e-9", "pairs by order": "v.lora_B v.lora_A"}),
    *rows("lora_fa", "V 0x05L", {"LoRA-FB from a zero B stays dead": "0"}),
)

PISSA = (
    *rows("pissa", "V 0x06A", {"squares of the singular tail": "82"}),
    *rows("pissa", "V 0x06B", {"squared error when s is omitted": "2304"}),
    *rows(
        "pissa",
        "V 0x06C",
        {
            "singular values": "16 9 1",
            "B0": "1.2 1.6 0",
            "A0": "0 2 0",
            "s B0 A0": "9.6 12.8 0",
            "W_res": "-7.2 5.4 1 0",
            "captured energy": "0.7574",
            "tail energy": "82",
        },
    ),
    *rows("pissa", "V 0x06D", {"X A0^T": "4 2", "g_B": "32 -12 24", "g_A": "-1.6 9.6 12.8"}),
    *rows(
        "pissa",
        "V 0x06E",
        {"B1": "0.88 1.72 -0.24", "A1": "0.016 1.904 -0.128", "cross-term norm": "0.268605"},
    ),
    *rows(
        "pissa",
        "V 0x06H",
        {
            "portable rank": "2",
            "wrong artifact squared error": "256",
            "portable labelled native, squared error": "256",
        },
    ),
)

LOFTQ = (
    *rows(
        "loftq",
        "V 0x07B",
        {
            "errors after four more iterations": "0.892505 1.038784 1.396043 2.129980",
            "errors that rise from the start": "0.489813 0.595456 0.779754 1.009957",
        },
    ),
    *rows(
        "loftq",
        "V 0x07D",
        {
            "error of Q(W)": "5.276988888889",
            "recovered energy fraction": "0.764836830295",
            "B1": "-0.480669894675 -0.477533666939 1.244952494712",
            "A1": "0.876171940883 0.827920287789 0.745559784238",
            "error after one SVD": "1.240953433611",
            "errors before the SVD": "5.276989 1.574891 1.028072 0.929800",
            "errors after the SVD": "1.240953 0.943482 0.868030 0.855185",
        },
    ),
    *rows("loftq", "V 0x07E", {"T = 4 factors on a fresh Q(W)": "3.337499353875"}),
    *rows(
        "loftq",
        "V 0x07F",
        {
            "unscaled factors at s = 1/2": "2.249962297431",
            "scale-aware factors at s = 1/2": "1.240953433611",
        },
    ),
    *rows(
        "loftq",
        "V 0x07J",
        {
            "the adapter on a fresh base": "initialized_against",
            "each change is refused by name": "quantizer source_tensors rank scale target_modules",
        },
    ),
    *rows("loftq", "V 0x07L", {"quantize first": "1.240953433611", "SVD first": "3.650081878597"}),
)

DORA = rows(
    "dora",
    "V 0x08F",
    {
        "BA": "0.10 -0.05 0.01 0.14 -0.07 0.07 -0.18 0.09 0.01",
        "U": "3.05 3.975 0.005 1.07 -2.035 2.035 1.91 1.045 2.005",
        "row norms c": "5.010304381971 3.070398996873 2.959755057433",
        "factors f": "1.097737698291 0.879364539511 -1.081170548882",
        "W_DoRA": "3.348099979786 4.363507350705 0.005488688491 0.940920057277 -1.789506837905 1.789506837905 "
        "-2.065035748364 -1.129823223581 -2.167746950508",
        "Y": "1.177323681417 5.414687152038 -5.835618037589 3.198533218394 -3.177803604657 -0.171635824635",
        "grad m": "0.188311912425 -0.404507688175 -0.201030148933",
        "grad U": "0.642578303506 -0.493323404260 0.219341247715 -0.227784924235 0.203924873172 0.323693850534 "
        "-0.356493839379 -0.725441291337 0.717700440229",
        "grad U against differences (9 coordinates)": "1.61e-10",
        "grad m against differences (3 coordinates)": "1.50e-10",
        "detached minus full": "0.465297169008",
        "radial part of the detached gradient": "0.206717085306 -0.355709716941 0.217347876463",
        "m0": "5 3 3",
        "no-op weight error": "0",
        "first grad A": "0",
    },
)

VARIANT_STACKS = (
    *rows(
        "variant_stacks",
        "V 0x09B",
        {
            "determined cells of QLoRA+rsLoRA": "P - P P P P P - admitted",
            "determined cells of QDoRA": "P - P P P P P P admitted",
            "determined cells of LoRA-FA+rsLoRA": "P P P P P P - P admitted",
            "determined cells of PiSSA+rsLoRA": "P - P P P P P P admitted",
            "determined cells of QAdaLoRA": "- - P - - U P C conditional",
            "determined cells of LoRA+&DoRA": "- P P C C - - U conditional",
            "determined cells of PiSSA+DoRA": "P P P - U - - U conditional",
            "determined cells of LoftQ+DoRA": "P P P - U - - U conditional",
            "determined cells of AdaLoRA+DoRA": "- R - - - - - - refused",
            "determined cells of AdaLoRA+LoftQ": "- R - - - - - - refused",
            "determined cells of AdaLoRA+rsLoRA": "- AS S S - - - - conditional",
            "determined cells of LoRA+&LoRA-FA": "- X - X - - - - refused",
            "determined cells of LoRA-FA+DoRA": "- - - M - - - - refused",
            "determined cells of PiSSA+patterned-rsLoRA": "- C C - R - C - refused",
            "determined cells of several-native-PiSSA": "X - - - X - - - refused",
            "determined cells of QLoRA+LoRA-FA": "P - - - - - - C conditional",
        },
    ),
    *rows("variant_stacks", "V 0x09C", {"non-commutation": "0.2"}),
    *rows(
        "variant_stacks",
        "V 0x09D",
        {
            "W_q": "1.0 -0.5 0.5",
            "W_q + s B A": "1.22 -0.68 0.50",
            "initial magnitude of row 1": "1.224744871392",
            "effective row 1": "1.007198734693 -0.561389458681 0.412786366677",
        },
    ),
    *rows("variant_stacks", "V 0x09E", {"classic and rank-stabilised scale": "2.0 2.828427"}),
    *rows("variant_stacks", "V 0x09F", {"LoftQ+DoRA starts at its own direction": "0"}),
    *rows("variant_stacks", "V 0x09G", {"AdaLoRA with a loftq_config alone": "accepted_but_shadowed rejected"}),
    *rows(
        "variant_stacks",
        "V 0x09K",
        {"stacks the document names": "15 16", "portable artifact evidence": "False"},
    ),
)

VARIANT_LIFECYCLE = (
    *rows(
        "variant_lifecycle",
        "V 0x0AB",
        {
            f"direct and resumed hashes of {name} agree": "True"
            for name in ("QLoRA+rsLoRA", "QDoRA", "LoRA-FA+rsLoRA", "PiSSA+rsLoRA")
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AC",
        {
            "scales": "2.828427 2.0",
            "portable keys of QLoRA+rsLoRA": "proj.lora_A.weight proj.lora_B.weight",
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AD",
        {
            "QDoRA starts at W_q": "0",
            "portable keys of QDoRA": "proj.lora_A.weight proj.lora_B.weight proj.lora_magnitude_vector.weight",
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AE",
        {
            "optimizer keys at P1": "A B magnitude",
            "frozen A never moves": "0",
            "portable keys of LoRA-FA+rsLoRA": "proj.lora_A.weight proj.lora_B.weight",
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AF",
        {
            "portable ranks": "2 4",
            "portable alphas": "4 5.656854",
            "release components and their adapter keys": "portable dense 0 2",
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AG",
        {
            "portable keys are slot-neutral": "True",
            "reloaded keys": "base_model.model.proj.lora_A.task_blue.weight "
            "base_model.model.proj.lora_B.task_blue.weight",
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AI",
        {
            "rollback bases": "nf4_payload_v1 dense_w0_v1",
            "rollback errors": "0",
            "uses_arithmetic_unmerge": "False",
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AJ",
        {
            "AdaLoRA+DoRA stops at": "configuration",
            "AdaLoRA+LoftQ stops at": "configuration",
            "LoRA+&LoRA-FA stops at": "optimizer_construction",
            "LoRA-FA+DoRA stops at": "backward_derivation",
            "PiSSA+patterned-rsLoRA stops at": "portable_export",
            "QAdaLoRA stops at": "merge",
        },
    ),
    *rows(
        "variant_lifecycle",
        "V 0x0AK",
        {"full gradients of QDoRA (15 coordinates)": "6.54e-10"},
    ),
)

ROWS: tuple[Row, ...] = (
    NF4 + ADALORA + RSLORA + LORA_PLUS + LORA_FA + PISSA + LOFTQ + DORA + VARIANT_STACKS + VARIANT_LIFECYCLE
)
