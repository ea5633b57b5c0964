"""The explicit table of oracles: a name is listed by its folder or it does not exist."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from oracles.conditional import ORACLES as CONDITIONAL
from oracles.errors import OracleTableError, UnknownOracleError
from oracles.model import Oracle
from oracles.routed import ORACLES as ROUTED
from oracles.variants import ORACLES as VARIANTS

ORACLES: Final[Mapping[str, str]] = {**VARIANTS, **CONDITIONAL, **ROUTED}
"""Oracle name -> module, in the order of the documents."""


def names() -> tuple[str, ...]:
    """Every listed oracle."""
    return tuple(ORACLES)


def load(name: str) -> Oracle:
    """The oracle of that name; raises UnknownOracleError, or OracleTableError when table and module disagree."""
    if name not in ORACLES:
        raise UnknownOracleError(name, names())
    module = ORACLES[name]
    oracle = getattr(import_module(module), "ORACLE", None)
    if not isinstance(oracle, Oracle):
        raise OracleTableError(name, module, "the module defines no ORACLE")
    if (oracle.name, oracle.module) != (name, module):
        raise OracleTableError(name, module, f"the module calls itself {oracle.name!r} in {oracle.module}")
    return oracle
