"""Weighted sum of members that keep their largest entries only."""

from __future__ import annotations

from collections.abc import Sequence

from compose.fields import Field, Trimmed
from compose.masks import MaskRole
from compose.module import ModuleInput, ModuleOutput
from compose.operators.factorwise import combine
from compose.operators.refactor import Prepared, refactor


def magnitude_prune_delta(module: ModuleInput) -> ModuleOutput:
    """On the members' deltas, then factored anew."""
    return refactor(module, _prune)


def magnitude_prune_factor(module: ModuleInput) -> ModuleOutput:
    """On all A and on all B apart."""
    return combine(module, _prune)


def _prune(module: ModuleInput, fields: Sequence[Field], _role: MaskRole) -> Prepared:
    choices = module.choices.prune
    assert choices is not None, "validated"
    return Prepared([Trimmed(each, choices) for each in fields])
