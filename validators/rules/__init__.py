"""The rules in order, one module a group; each is a plain function from a context to what it sees wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from schemas.decision import Finding
from validators.context import Context
from validators.rules import base, choices, conditional, factors, lane, members, targets

RULES: Final[tuple[Callable[[Context], Iterator[Finding]], ...]] = (
    base.weights,
    base.architecture,
    base.quantizer,
    base.tokenizer,
    base.evidence,
    base.initializer,
    conditional.contracts,
    conditional.lifts,
    conditional.route_program,
    conditional.hard_routes,
    targets.modules,
    targets.sites,
    members.family,
    members.training,
    members.payload,
    members.replacements,
    members.once,
    members.coefficients,
    factors.dtypes,
    factors.extras,
    factors.scale_rules,
    factors.equal_ranks,
    factors.module_sets,
    factors.scales,
    choices.space,
    choices.alias,
    choices.owned,
    choices.rank,
    choices.release_only,
    lane.composable,
    lane.state,
)
