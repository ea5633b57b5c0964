"""Numbers of conditional compute (C) and the checks that assert them."""

from tests.oracles.ledger import Row, rows

MOA = (
    *rows("moa", "C 0x02A", {"A shape": "1 2 3", "map elements": "12"}),
    *rows(
        "moa",
        "C 0x02C",
        {
            "G": "0 1",
            "Z": "0.80",
            "w": "0.625 0.375",
            "p": "0.50 0.30 0.20",
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
            "MACs by operation": "12 24 32",
            "MACs, named": "116",
            "symmetric T = 2, paper convention": "64",
            "symmetric T = 2, named convention": "92",
        },
    ),
    *rows("moa", "C 0x02G", {"K shape: no expert axis": "1 3 2"}),
)

ROWS: tuple[Row, ...] = MOA
