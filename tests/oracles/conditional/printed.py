"""Numbers of conditional compute (C) and the checks that assert them."""

from tests.oracles.conditional.printed_families import ROWS as FAMILIES
from tests.oracles.conditional.printed_operators import ROWS as OPERATORS
from tests.oracles.ledger import Row

ROWS: tuple[Row, ...] = OPERATORS + FAMILIES
