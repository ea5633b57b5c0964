"""DARE: drop coordinates at random and divide by the density, then sum or elect (R 0x05F).

One draw is not the delta it estimates; it is reproducible from its recorded identity, and its error is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compose.fields import Dropped, Field, Trimmed
from compose.masks import MaskRole, draw_mask
from compose.module import ModuleInput, ModuleOutput
from compose.operators.factorwise import combine
from compose.operators.refactor import Prepared, refactor
from compose.operators.ties import ties_choices


def dare_linear_delta(module: ModuleInput) -> ModuleOutput:
    """Weighted sum of dropped deltas, factored anew."""
    return refactor(module, _drop)


def dare_linear_factor(module: ModuleInput) -> ModuleOutput:
    """Dropped A and dropped B, summed apart."""
    return combine(module, _drop)


def dare_ties_delta(module: ModuleInput) -> ModuleOutput:
    """TIES on dropped deltas; its own trim follows the drop, and density 1 is no trim."""
    return refactor(module, _drop_and_trim, ties_choices(module))


def dare_ties_factor(module: ModuleInput) -> ModuleOutput:
    """TIES on dropped A and dropped B apart."""
    return combine(module, _drop_and_trim, ties_choices(module))


def _drop(module: ModuleInput, fields: Sequence[Field], role: MaskRole) -> Prepared:
    dare = module.choices.dare
    assert dare is not None, "validated"
    dropped, refs = [], []
    for factor, each in zip(module.factors, fields, strict=True):
        count = each.tiling.rows * each.tiling.columns
        mask = draw_mask(dare.seed, factor.adapter, module.module, role, dare.density, count)
        dropped.append(Dropped(each, mask, dare.density))
        refs.append(mask.ref(factor.adapter, role))
    return Prepared(dropped, tuple(refs), dropped)


def _drop_and_trim(module: ModuleInput, fields: Sequence[Field], role: MaskRole) -> Prepared:
    drawn, ties = _drop(module, fields, role), ties_choices(module)
    if ties.density == 1.0:
        return drawn
    return replace(drawn, fields=[Trimmed(each, ties) for each in drawn.fields])
