"""Every ledger row; `python -m tests.oracles.printed` lists number -> check and fails when one is missing."""

import sys

from tests.oracles.conditional.printed import ROWS as CONDITIONAL
from tests.oracles.ledger import problem, report
from tests.oracles.routed.printed import ROWS as ROUTED
from tests.oracles.variants.printed import ROWS as VARIANTS

ROWS = VARIANTS + CONDITIONAL + ROUTED


def main() -> int:
    """Print every row with its verdict; 1 when a number is missing."""
    missing = 0
    for row in ROWS:
        wrong = problem(row, report(row.oracle).checks)
        missing += wrong is not None
        verdict = "" if wrong is None else f"  MISSING: {wrong}"
        sys.stdout.write(f"{row.source}  {row.numbers} -> {row.oracle}: {row.check}{verdict}\n")
    sys.stdout.write(f"{len(ROWS)} rows, {missing} missing\n")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
