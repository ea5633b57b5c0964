"""Numbers of the multimodal stages, the seven contracts and the sweeps (C 0x07, 0x08, 0x0A) and their checks."""

from tests.oracles.ledger import Row, rows

MULTIMODAL_STAGE = (
    *rows("multimodal_stage", "C 0x07B", {"direct target rows": "4"}),
    *rows(
        "multimodal_stage",
        "C 0x07C",
        {
            "stage, parent and output checkpoint": "base aligned_projector dense_lvlm "
            "align dense_multimodal sparse_moe sparse_lvlm",
            "trainable by stage, paper": "projector language_model experts router",
            "Stage III trainable, pinned code": "fc1 fc2 wg projector",
            "trainable beyond the paper figure": "projector",
        },
    ),
    *rows("multimodal_stage", "C 0x07D", {"stored gate is E x d": "4 2"}),
    *rows("multimodal_stage", "C 0x07E", {"auxiliary counts: first choices of all rows": "12"}),
    *rows("multimodal_stage", "C 0x07F", {"evaluation capacity differs from training": "12"}),
    *rows("multimodal_stage", "C 0x07H", {"P(m | e), specialised": "1.0 0.0", "P(m | e), mixed": "0.5"}),
    *rows(
        "multimodal_stage",
        "C 0x07L",
        {
            "row kinds": "image text_prompt text_target pad",
            "materialised router rows": "12",
            "valid content rows": "9",
            "image, text and padding rows": "3 6 3",
            "experts and capacity factors": "4 1.5 0.4",
            "cf 1.5: capacity": "9",
            "cf 1.5: requested routes": "24",
            "cf 1.5: executed routes": "24",
            "cf 1.5: complete losses": "0",
            "cf 1.5: clone error": "1e-12",
            "cf 1.5: dispatch bytes": "96",
            "cf 1.5: round trip": "192",
            "cf 0.4: capacity": "3",
            "cf 0.4: requested routes": "24",
            "cf 0.4: executed routes": "12",
            "cf 0.4: complete losses": "3",
            "cf 0.4: clone error": "1.75",
            "cf 0.4: dispatch bytes": "48",
            "cf 0.4: round trip": "96",
            "relabelling changes no output": "0.0",
        },
    ),
)

FAMILY_CONTRACTS = (
    *rows("family_contracts", "C 0x00F", {"event coordinates": "14"}),
    *rows(
        "family_contracts",
        "C 0x08A",
        {"methods and fields": "7 21", "pairs": "21", "smallest and largest distance": "14 21"},
    ),
    *rows(
        "family_contracts",
        "C 0x08C",
        {"distances": "14 21", "nearest pairs": "moa switchhead mod_training mod_decode"},
    ),
    *rows("family_contracts", "C 0x08D", {"attention shapes": "1 2 2 3", "K/V shapes": "1 3 2 1 3 2 2"}),
    *rows("family_contracts", "C 0x08E", {"named parameters": "30"}),
    *rows(
        "family_contracts",
        "C 0x08J",
        {
            "work of moa": "6 4 12 None None 3",
            "work of switchhead": "30 20 12 None None 3",
            "work of mod_training": "12 None 36 6 None None",
            "work of mod_decode": "24 None None 12 None 12",
            "work of staged": "6 8 None None 2 2 2",
            "work of integrated": "12 None None 4 3 4",
            "work of moe_llava": "48 None None None 24 9",
        },
    ),
)

SENSITIVITY = (
    *rows(
        "sensitivity",
        "C 0x0A",
        {"evidence class": "synthetic_logical_counterfactual", "measured claims": "False"},
    ),
    *rows(
        "sensitivity",
        "C 0x0AB",
        {
            "selected weights": "0.95 0.05 0.90 0.10 0.7 0.3 0.6 0.4",
            "normalised entropies": "0.377696 0.926121 1",
            "T_k": "1 3 8",
            "SwitchHead map elements": "4 12 32",
            "SwitchHead source edges": "4 12 32",
            "SwitchHead destination edges": "8",
        },
    ),
    *rows(
        "sensitivity",
        "C 0x0AC",
        {"MoD map elements": "8 32 72", "map coordinate": "0.0625 0.25 0.5625"},
    ),
    *rows(
        "sensitivity",
        "C 0x0AD",
        {
            "probabilities": "0.12 0.31 0.49 0.51 0.73 0.94",
            "selected rows and new K/V rows": "5 3 1",
            "p equal to tau is skipped": "0",
        },
    ),
    *rows(
        "sensitivity",
        "C 0x0AE",
        {"staged attention, experts, K/V": "2 4 8", "integrated attention, experts, K/V": "8 6 2"},
    ),
    *rows(
        "sensitivity",
        "C 0x0AF",
        {
            "request histogram": "9 7 5 3",
            "capacity": "3 6 9",
            "executed": "12 20 24",
            "dropped": "12 4 0",
            "unused slots": "0 4 12",
            "requested routes with padding": "18 24 36",
            "balanced-mean capacity": "5 6 9",
        },
    ),
    *rows(
        "sensitivity",
        "C 0x0AG",
        {
            "phase rows": "8",
            "history, new, after": "3 1 4 3 1 4 0 0 0 3 1 4 3 0 3 2 1 3 3 1 4 3 1 4",
            "cache class by method": "moa switchhead mod_training mod_decode staged integrated moe_llava",
        },
    ),
    *rows("sensitivity", "C 0x0AI", {"operating points": "8 24"}),
)

ROWS: tuple[Row, ...] = MULTIMODAL_STAGE + FAMILY_CONTRACTS + SENSITIVITY
