"""TIES: trim, elect a sign, reduce over the aligned (R 0x05E). Every choice is in `TiesChoices`."""

from __future__ import annotations

from collections.abc import Sequence

from compose.fields import Field, Trimmed
from compose.masks import MaskRole
from compose.module import ModuleInput, ModuleOutput
from compose.operators.factorwise import combine
from compose.operators.refactor import Prepared, refactor
from schemas.methods import TiesChoices


def ties_delta(module: ModuleInput) -> ModuleOutput:
    """On the members' deltas, then factored anew."""
    return refactor(module, _trim, ties_choices(module))


def ties_factor(module: ModuleInput) -> ModuleOutput:
    """On all A and on all B apart."""
    return combine(module, _trim, ties_choices(module))


def ties_choices(module: ModuleInput) -> TiesChoices:
    """The choices, which validation demands of every method that elects."""
    choices = module.choices.ties
    assert choices is not None, "validated"
    return choices


def _trim(module: ModuleInput, fields: Sequence[Field], _role: MaskRole) -> Prepared:
    return Prepared([Trimmed(each, ties_choices(module)) for each in fields])
