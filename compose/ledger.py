"""The ledger: floating figures of a composition as JSON with nine significant digits, per module and in total."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compose.module import Figures, ModuleOutput
from schemas.canonical import JsonObject, JsonValue

DIGITS: Final = 9
FEW_MEMBERS: Final = 8
"""Up to so many members a module lists every cosine; the total always does."""

Products = NDArray[np.float64]
"""``[J, J]``: ``<D_i, D_j>``."""
_NONE: Final[Products] = np.zeros((0, 0))


@dataclass(frozen=True)
class Entry:
    """One finished module as the ledger needs it: `members` are positions in the request."""

    module: str
    members: tuple[int, ...]
    input_ranks: tuple[int, ...]
    output_rank: int
    output: ModuleOutputFacts


@dataclass(frozen=True)
class ModuleOutputFacts:
    """A module's output without its tensors; the products, which many members make many, apart."""

    figures: Figures
    products: Products
    retained: tuple[int, ...]
    masks: tuple[str, ...]


def facts(output: ModuleOutput) -> ModuleOutputFacts:
    """Let go of the tensors."""
    masks = tuple(mask.mask for mask in output.masks)
    figures = replace(output.figures, products=_NONE)
    return ModuleOutputFacts(figures, output.figures.products, output.retained, masks)


def significant(value: float) -> float:
    """The number with nine significant digits; what is beyond them differs between machines."""
    return float(f"{value:.{DIGITS}g}")


def ledger(entries: Iterable[Entry], members: int) -> JsonObject:
    """``{"modules": {name: figures}, "total": figures}``; of each entry the products, which many members make many, are
    let go before the next.

    `cosines` of the members' deltas are the upper triangle by rows; a module of more than eight members has only their
    smallest, mean and largest, as ``{"min", "mean", "max"}``.
    """
    modules: JsonObject = {}
    kept: list[Entry] = []
    products = np.zeros((members, members))
    for entry in entries:
        modules[entry.module] = _module(entry)
        products[np.ix_(entry.members, entry.members)] += entry.output.products
        kept.append(replace(entry, output=replace(entry.output, products=_NONE)))
    return {"modules": modules, "total": _total(kept, products)}


def _module(entry: Entry) -> JsonObject:
    figures, cosines = entry.output.figures, _cosines(entry.output.products)
    document: JsonObject = {
        "members": list(entry.members),
        "input_ranks": list(entry.input_ranks),
        "output_rank": entry.output_rank,
        "numerical_rank": figures.numerical_rank,
        "norm": significant(figures.norm),
        "singular_values": [significant(value) for value in figures.singular_values],
        "discarded_energy": significant(figures.discarded_energy),
        "error": significant(figures.error),
        "rounding": significant(figures.rounding),
        "cosines": _listed(cosines) if len(entry.members) <= FEW_MEMBERS else _spread(cosines),
        "deviation": _optional(figures.deviation),
        "cross_term_norm": _optional(figures.cross_term_norm),
        "gauge_sensitivity": _optional(figures.gauge_sensitivity),
        "sign_conflict": _fraction(figures.conflict),
        "retained": list(entry.output.retained),
        "masks": list(entry.output.masks),
        "drops": [{"expected": significant(drop.expected), "drawn": significant(drop.drawn)} for drop in figures.drops],
        "certificate": _certificate(figures),
    }
    return document


def _total(entries: list[Entry], products: Products) -> JsonObject:
    every = [entry.output.figures for entry in entries]
    conflicts = [figures.conflict for figures in every if figures.conflict is not None]
    ranks = [figures.numerical_rank for figures in every]
    return {
        "modules": len(entries),
        "input_ranks": sum(sum(entry.input_ranks) for entry in entries),
        "output_rank": sum(entry.output_rank for entry in entries),
        "numerical_rank": None if None in ranks else sum(rank or 0 for rank in ranks),
        "norm": _root_sum([figures.norm for figures in every]),
        "discarded_energy": significant(sum(figures.discarded_energy for figures in every)),
        "error": _root_sum([figures.error for figures in every]),
        "rounding": _root_sum([figures.rounding for figures in every]),
        "cosines": _listed(_cosines(products)),
        "deviation": _root_sum([figures.deviation for figures in every]),
        "cross_term_norm": _root_sum([figures.cross_term_norm for figures in every]),
        "gauge_sensitivity": _largest([figures.gauge_sensitivity for figures in every]),
        "sign_conflict": _fraction(_sums(conflicts)) if conflicts else None,
        "retained": sum(sum(entry.output.retained) for entry in entries),
    }


def _sums(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _optional(value: float | None) -> float | None:
    return None if value is None else significant(value)


def _root_sum(values: list[float] | list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return significant(sqrt(sum(value * value for value in present))) if present else None


def _largest(values: list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return significant(max(present)) if present else None


def _fraction(counts: tuple[int, int] | None) -> float | None:
    if counts is None:
        return None
    part, whole = counts
    return significant(part / whole) if whole else 0.0


def _cosines(products: Products) -> NDArray[np.float64]:
    """Upper triangle by rows, (0,1), (0,2), ..., (1,2), ...; NaN where a member is zero."""
    lengths: Products = np.sqrt(np.maximum(products.diagonal(), 0.0))
    rows, columns = np.triu_indices(len(products), 1)
    sizes = lengths[rows] * lengths[columns]
    cosines = np.full(sizes.shape, np.nan)
    np.divide(products[rows, columns], sizes, out=cosines, where=sizes > 0)
    return cosines.clip(-1.0, 1.0)


def _listed(cosines: NDArray[np.float64]) -> list[JsonValue]:
    return [None if isnan(cosine) else significant(cosine) for cosine in cosines.tolist()]


def _spread(cosines: NDArray[np.float64]) -> JsonObject:
    known = cosines[~np.isnan(cosines)]
    if not len(known):
        return {"min": None, "mean": None, "max": None}
    figures = {"min": known.min(), "mean": known.mean(), "max": known.max()}
    return {name: significant(float(value)) for name, value in figures.items()}


def _certificate(figures: Figures) -> JsonObject | None:
    certificate = figures.certificate
    if certificate is None:
        return None
    return {
        "excess": significant(certificate.excess),
        "failure_probability": certificate.failure_probability,
        "basis": certificate.basis,
    }
