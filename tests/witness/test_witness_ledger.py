"""The written ledger, per module and in total, against figures of the plain reference at nine significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import torch

from oracles.matrix import Matrix, frobenius
from schemas.methods import Choices, DareChoices, Method, PruneChoices, Space, ties_preset
from tests.compose.building import Pair, digest_of, figures, member, request, run, total
from tests.witness.cases import EXACT, METHODS, Numbers, draw_matrix
from tests.witness.reference import Case, Expected, Plain, cosine, expected

MODULES: Final = {"layer.0": (0, 1, 2), "layer.1": (0, 2)}
"""Module -> members that act on it."""

WEIGHTS: Final = (1.0, -0.5, 0.75)
SCALES: Final = (2.0, 0.5, 1.5)
CHOICES: Final = Choices(
    rank=3,
    ties=ties_preset("mergekit", 0.6),
    dare=DareChoices(density=0.5, seed="3"),
    prune=PruneChoices(density=0.5),
    dtype=EXACT,
)


def plain_members() -> dict[str, tuple[Plain, ...]]:
    """Members of every module, in the order of the request."""
    source, numbers = Random(9), Numbers("normal")
    return {
        module: tuple(
            Plain(
                digest_of(str(i)),
                WEIGHTS[i],
                SCALES[i],
                draw_matrix(source, numbers, 6, 2),
                draw_matrix(source, numbers, 2, 5),
            )
            for i in positions
        )
        for module, positions in MODULES.items()
    }


def pair(plain: Plain) -> Pair:
    """(A, B) as tensors."""
    return torch.tensor(plain.A, dtype=torch.float64), torch.tensor(plain.B, dtype=torch.float64)


def near(found: float | None, wanted: float | None, size: float) -> bool:
    """Equal at nine significant digits, or both rounding."""
    if found is None or wanted is None:
        return found is wanted
    return abs(found - wanted) <= 6e-9 * abs(wanted) + 1e-12 * size


def relative(truth: Expected) -> float | None:
    """The gauge change relative to the output."""
    return None if truth.gauge is None else truth.gauge / frobenius(truth.target)


def missed(truth: Expected) -> float:
    """The error of a pair stored in float64: what was discarded."""
    return math.sqrt(truth.discarded) if truth.pair is None else 0.0


def root_sum(values: Sequence[float | None]) -> float | None:
    """sqrt(sum x^2) over those that exist."""
    present = [x for x in values if x is not None]
    return math.sqrt(math.fsum(x * x for x in present)) if present else None


def cosines(products: Matrix) -> list[float | None]:
    """Upper triangle by rows."""
    return [cosine(products, i, j) for i in range(len(products)) for j in range(i + 1, len(products))]


def check_figures(found: dict[str, Any], truth: Expected) -> None:
    """One module's entry."""
    size = truth.size
    assert near(found["norm"], frobenius(truth.target), size)
    assert near(found["discarded_energy"], truth.discarded if truth.pair is None else 0.0, size**2)
    assert near(found["error"], missed(truth), size)
    assert near(found["rounding"], 0.0, size)
    assert near(found["deviation"], truth.deviation, size)
    assert near(found["cross_term_norm"], truth.cross_terms, size)
    assert near(found["gauge_sensitivity"], relative(truth), 1.0)
    assert found["numerical_rank"] == truth.numerical_rank
    assert found["retained"] == list(truth.retained)
    assert found["masks"] == [mask.mask for mask in truth.masks]
    assert len(found["cosines"]) == len(cosines(truth.products))
    assert all(near(x, y, 1.0) for x, y in zip(found["cosines"], cosines(truth.products), strict=True))
    assert all(near(x, s, size) for x, s in zip(found["singular_values"], truth.sigma, strict=False))
    assert near(found["sign_conflict"], fraction([truth]), 1.0)
    drops = [(rate, change / norm) for rate, change, norm in truth.drops]
    assert [tuple(drop.values()) for drop in found["drops"]] == [pytest.approx(drop, rel=6e-9) for drop in drops]


def fraction(truths: Sequence[Expected]) -> float | None:
    """Coordinates in conflict among those with any vote."""
    counts = [truth.conflict for truth in truths if truth.conflict is not None]
    return sum(part for part, _ in counts) / sum(whole for _, whole in counts) if counts else None


def summed_products(truths: dict[str, Expected]) -> Matrix:
    """<D_i, D_j> over all modules, by position in the request."""
    out = [[0.0] * 3 for _ in range(3)]
    for module, positions in MODULES.items():
        for row, i in enumerate(positions):
            for column, j in enumerate(positions):
                out[i][j] += truths[module].products[row][column]
    return tuple(map(tuple, out))


def check_total(found: dict[str, Any], truths: dict[str, Expected]) -> None:
    """The sums over modules."""
    every = list(truths.values())
    size = math.fsum(truth.size for truth in every)
    ranks = [truth.numerical_rank for truth in every]
    gauges = [g for g in map(relative, every) if g is not None]
    assert near(found["norm"], root_sum([frobenius(truth.target) for truth in every]), size)
    assert near(found["discarded_energy"], math.fsum(t.discarded for t in every if t.pair is None), size**2)
    assert near(found["error"], root_sum([missed(truth) for truth in every]), size)
    assert near(found["deviation"], root_sum([truth.deviation for truth in every]), size)
    assert near(found["cross_term_norm"], root_sum([truth.cross_terms for truth in every]), size)
    assert near(found["gauge_sensitivity"], max(gauges, default=None), 1.0)
    assert near(found["sign_conflict"], fraction(every), 1.0)
    assert found["numerical_rank"] == (None if None in ranks else sum(rank or 0 for rank in ranks))
    assert found["retained"] == sum(sum(truth.retained) for truth in every)
    wanted = cosines(summed_products(truths))
    assert all(near(x, y, 1.0) for x, y in zip(found["cosines"], wanted, strict=True))
    assert (found["modules"], found["input_ranks"]) == (2, 10)


@pytest.mark.parametrize(("method", "space"), METHODS)
def test_the_ledger_states_the_figures_of_the_reference(method: Method, space: Space, tmp_path: Path) -> None:
    plain = plain_members()
    members = []
    for position in range(3):
        pairs = {
            module: pair(plain[module][positions.index(position)])
            for module, positions in MODULES.items()
            if position in positions
        }
        members.append(member(tmp_path, str(position), pairs, weight=WEIGHTS[position], scale=SCALES[position]))
    asked = request(
        method, members, space=space, rank=CHOICES.rank, ties=CHOICES.ties, dare=CHOICES.dare, prune=CHOICES.prune
    )
    result, _ = run(asked, tmp_path / "out.safetensors")
    truths = {module: expected(Case(method, space, acting, CHOICES, 3, module)) for module, acting in plain.items()}
    for module, truth in truths.items():
        check_figures(figures(result, module), truth)
    check_total(total(result), truths)
