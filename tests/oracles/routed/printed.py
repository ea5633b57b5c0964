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

ROWS: tuple[Row, ...] = COMPOSITION_MERGE
