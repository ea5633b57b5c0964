"""Numbers of conditional compute (C) and the checks that assert them."""

from tests.oracles.ledger import Row

ROWS: tuple[Row, ...] = ()
