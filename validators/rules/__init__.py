"""The rules in order, one module a group; each is a plain function from a context to what it sees wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from schemas.decision import Finding
from validators.context import Context
from validators.rules import base, choices, conditional, factors, family, lane, members, roles, targets, training

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
    family.known,
    family.form,
    family.quantized,
    family.initializer,
    family.label,
    training.missing,
    training.foreign,
    training.rates,
    training.frozen,
    training.resume,
    members.payload,
    members.snapshots,
    members.replacements,
    members.token_rows,
    members.once,
    members.coefficients,
    factors.dtypes,
    factors.scale_rules,
    roles.missing,
    roles.foreign,
    roles.biases,
    roles.shapes,
    roles.zero_ranks,
    roles.one_order,
    roles.shared_a,
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
