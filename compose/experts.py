"""Stacked experts: a parameter ``[E, d_out, d_in]`` is composed as its E matrices, each by itself.

``a [E r, d_in]`` has the expert outside and ``b [d_out, r E]`` inside, so that ``D_e = b[:, :, e] a[e]``. A mask's key
names expert e of a module as ``<module>#e``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import sqrt

import torch
from torch import Tensor

from compose.lowrank import LEADING
from compose.module import Certificate, Drop, Figures, ModuleInput, ModuleOutput


def pairs(a: Tensor, b: Tensor, experts: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The pair of each expert, as matrices ``a [r, d_in]`` and ``b [d_out, r]``."""
    inner = b.reshape(b.shape[0], -1, experts)
    for expert, outer in enumerate(a.reshape(experts, -1, a.shape[1])):
        yield outer, inner[:, :, expert].contiguous()


def split(module: ModuleInput, experts: int) -> Iterator[ModuleInput]:
    """A module of stacked factors as one for each expert."""
    each = [list(pairs(factor.a, factor.b, experts)) for factor in module.factors]
    for expert, own in enumerate(zip(*each, strict=True)):
        factors = tuple(replace(factor, a=a, b=b) for factor, (a, b) in zip(module.factors, own, strict=True))
        yield replace(module, module=f"{module.module}#{expert}", factors=factors)


def join(outputs: Sequence[ModuleOutput]) -> ModuleOutput:
    """The experts' outputs as one of stacked factors; counts are summed, masks follow each other expert by expert."""
    a = torch.cat([output.a for output in outputs])
    b = torch.stack([output.b for output in outputs], dim=2).flatten(1)
    retained = tuple(sum(counts) for counts in zip(*(output.retained for output in outputs), strict=True))
    masks = tuple(mask for output in outputs for mask in output.masks)
    return ModuleOutput(a, b, _figures([output.figures for output in outputs]), retained, masks)


def _figures(every: Sequence[Figures]) -> Figures:
    """Of the block-diagonal matrix of all experts; the sensitivity to a gauge is the largest of any."""
    ranks = [figures.numerical_rank for figures in every]
    values = sorted((value for figures in every for value in figures.singular_values), reverse=True)
    return Figures(
        norm=_root([figures.norm for figures in every]),
        singular_values=tuple(values[:LEADING]),
        numerical_rank=None if None in ranks else sum(rank or 0 for rank in ranks),
        discarded_energy=sum(figures.discarded_energy for figures in every),
        error=_root([figures.error for figures in every]),
        rounding=_root([figures.rounding for figures in every]),
        products=sum((figures.products for figures in every[1:]), every[0].products),
        deviation=_optional_root([figures.deviation for figures in every]),
        cross_term_norm=_optional_root([figures.cross_term_norm for figures in every]),
        gauge_sensitivity=max((f.gauge_sensitivity for f in every if f.gauge_sensitivity is not None), default=None),
        conflict=_conflict([figures.conflict for figures in every]),
        drops=_drops(every),
        certificate=_certificate([figures.certificate for figures in every]),
    )


def _root(values: Sequence[float]) -> float:
    return sqrt(sum(value * value for value in values))


def _optional_root(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return _root(present) if present else None


def _conflict(pairs: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    present = [pair for pair in pairs if pair is not None]
    return (sum(pair[0] for pair in present), sum(pair[1] for pair in present)) if present else None


def _drops(every: Sequence[Figures]) -> tuple[Drop, ...]:
    """One member's error over all experts: each weighs with the square of its own norm."""
    drops = []
    for member, first in enumerate(every[0].drops):
        energies = [figures.products[member][member] for figures in every]
        lost = sum(figures.drops[member].drawn ** 2 * energy for figures, energy in zip(every, energies, strict=True))
        drops.append(Drop(first.expected, sqrt(lost / sum(energies)) if sum(energies) > 0 else 0.0))
    return tuple(drops)


def _certificate(every: Sequence[Certificate | None]) -> Certificate | None:
    """Bounds add up, and so do the probabilities that one of them is wrong."""
    present = [certificate for certificate in every if certificate is not None]
    if not present:
        return None
    return Certificate(
        sum(certificate.excess for certificate in present),
        sum(certificate.failure_probability for certificate in present),
        max(certificate.basis for certificate in present),
    )
