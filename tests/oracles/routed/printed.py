"""Numbers of routed, shared and continual adapters (R) and the checks that assert them."""

from tests.oracles.ledger import Row
from tests.oracles.routed.printed_methods import ROWS as METHODS
from tests.oracles.routed.printed_systems import ROWS as SYSTEMS

ROWS: tuple[Row, ...] = METHODS + SYSTEMS
