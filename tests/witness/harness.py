"""The engine's output for a case held against the plain reference, figure by figure, to 1e-12."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch

from compose.module import Figures, LoadedFactor, ModuleInput, ModuleOutput
from compose.operators import OPERATORS
from oracles.linalg import truncated
from oracles.matrix import Matrix, diagonal, distance, frobenius, matrix, shape, subtract, transpose
from schemas.methods import SvdChoices
from tests.witness.reference import Case, Drawn, Expected, Pair, expected, gram

TOLERANCE: Final = 1e-12
"""Of float64 work, relative to the size of the case; squares are relative to its square."""

SEPARATED: Final = 0.02
"""A gap, relative to the size, above which the best approximation is well conditioned to `TOLERANCE`."""

Operator = Callable[[ModuleInput], ModuleOutput]


def module_of(case: Case) -> ModuleInput:
    """The case as the engine takes it."""
    factors = tuple(
        LoadedFactor(
            m.adapter,
            m.weight,
            m.scale,
            torch.tensor(m.A, dtype=torch.float64),
            torch.tensor(m.B, dtype=torch.float64),
        )
        for m in case.members
    )
    return ModuleInput(case.module, factors, case.choices, case.keep)


def pair_of(output: ModuleOutput) -> Pair:
    """The engine's factors as plain numbers."""
    return Pair(matrix(output.b.double().tolist()), matrix(output.a.double().tolist()))


def operator_of(case: Case) -> Operator:
    """The operator the engine would run."""
    return OPERATORS[case.method, case.space]


@dataclass(frozen=True)
class Found:
    """An output stored in float64, and what it should be."""

    truth: Expected
    pair: Pair
    output: ModuleOutput

    @property
    def figures(self) -> Figures:
        """The engine's figures."""
        return self.output.figures


def differences(case: Case, operator: Operator | None = None) -> tuple[str, ...]:
    """The names of everything in which an operator's output departs from the reference."""
    output = (operator or operator_of(case))(module_of(case))
    found = Found(expected(case), pair_of(output), output)
    if shape(found.pair.delta) != shape(found.truth.target):
        return ("shape",)
    names = [name for name, error, size in _errors(found) if not error <= TOLERANCE * size]
    return (*names, *_exact(found, case.choices.svd or SvdChoices()))


def _errors(found: Found) -> Iterator[tuple[str, float, float]]:
    """(figure, absolute error, what it is relative to)."""
    truth, figures, size = found.truth, found.figures, found.truth.size
    yield from _factor_errors(found)
    missed = frobenius(subtract(truth.target, found.pair.delta))
    yield "norm", abs(figures.norm - frobenius(truth.target)), size
    yield "singular_values", _vector_error(figures.singular_values, truth), size
    yield "discarded_energy", abs(figures.discarded_energy - truth.discarded), size**2
    yield "error", abs(figures.error - missed), size
    yield "error of the best rank", abs(missed - math.sqrt(truth.discarded)), size
    yield "rounding", figures.rounding, size
    yield "products", distance(tuple(map(tuple, figures.products)), truth.products), size**2
    yield "deviation", _optional_error(figures.deviation, truth.deviation), size
    yield "cross_term_norm", _optional_error(figures.cross_term_norm, truth.cross_terms), size
    yield "gauge_sensitivity", _gauge_error(figures, truth), size
    yield "drops", _drop_error(figures, truth), size


def _factor_errors(found: Found) -> Iterator[tuple[str, float, float]]:
    """The factors themselves where the method defines them, else the form of an SVD and its product."""
    truth, pair = found.truth, found.pair
    if truth.pair is not None:
        yield "lora_A", _matrix_error(pair.A, truth.pair.A), frobenius(truth.pair.A)
        yield "lora_B", _matrix_error(pair.B, truth.pair.B), frobenius(truth.pair.B)
        return
    best = best_delta(truth)
    if best is not None:
        yield "delta", distance(pair.delta, best), truth.size


def best_delta(truth: Expected) -> Matrix | None:
    """U_r' Sigma_r' V_r'^T, the target itself when nothing is cut; none where the cut is between close values."""
    kept = truth.keep
    if kept >= len(truth.sigma) or truth.sigma[kept] <= TOLERANCE * truth.size / 10:
        return truth.target
    if truth.sigma[kept - 1] - truth.sigma[kept] < SEPARATED * truth.size:
        return None
    b, a = truncated(truth.target, kept)
    return Pair(b, a).delta


def _matrix_error(found: Matrix, wanted: Matrix) -> float:
    return distance(found, wanted) if shape(found) == shape(wanted) else math.inf


def _vector_error(values: tuple[float, ...], truth: Expected) -> float:
    """Leading singular values; a list shorter than the true one must have left out zeros or what was cut."""
    shown = (*values, *(0.0,) * (len(truth.sigma) - len(values)))
    wanted = truth.sigma if truth.pair is not None or truth.numerical_rank is not None else truth.sigma[: truth.keep]
    return max((abs(x - y) for x, y in zip(shown, wanted[:8], strict=False)), default=0.0)


def _optional_error(found: float | None, wanted: float | None) -> float:
    if found is None or wanted is None:
        return 0.0 if found is wanted else math.inf
    return abs(found - wanted)


def _gauge_error(figures: Figures, truth: Expected) -> float:
    """Of the absolute change: a product that vanishes has no relative one."""
    norm = frobenius(truth.target)
    if truth.gauge is None or norm == 0.0:
        return 0.0 if figures.gauge_sensitivity is None else math.inf
    return _optional_error(None if figures.gauge_sensitivity is None else figures.gauge_sensitivity * norm, truth.gauge)


def _drop_error(figures: Figures, truth: Expected) -> float:
    if len(figures.drops) != len(truth.drops):
        return math.inf
    pairs = zip(figures.drops, truth.drops, strict=True)
    return max(
        (max(abs(d.expected - rate) * norm, abs(d.drawn * norm - change)) for d, (rate, change, norm) in pairs),
        default=0.0,
    )


def _exact(found: Found, svd: SvdChoices) -> Iterator[str]:
    """Counts and digests, which must be equal, and the form of a decomposed pair."""
    truth, figures, output = found.truth, found.figures, found.output
    if truth.pair is None and not is_decomposed(found, svd.split):
        yield "decomposition"
    if figures.numerical_rank != truth.numerical_rank:
        yield "numerical_rank"
    if figures.conflict != truth.conflict:
        yield "conflict"
    if output.retained != truth.retained:
        yield "retained"
    if tuple(Drawn(m.adapter, m.role, m.mask, m.retained) for m in output.masks) != truth.masks:
        yield "masks"


def is_decomposed(found: Found, split: str) -> bool:
    """Rows of A orthogonal with norm 1 (split `b`) or sqrt(sigma), columns of B with the rest, signs fixed by A."""
    pair, sigma, size = found.pair, found.truth.sigma[: found.truth.keep], found.truth.size
    norms_a = tuple(1.0 for _ in sigma) if split == "b" else sigma
    norms_b = tuple(s * s for s in sigma) if split == "b" else sigma
    right = distance(gram(pair.A), diagonal(norms_a)) <= TOLERANCE * max(1.0, size)
    left = distance(gram(transpose(pair.B)), diagonal(norms_b)) <= TOLERANCE * max(size, size**2)
    return right and left and all(max(row, key=abs) > 0.0 or not any(row) for row in pair.A)
