"""Cases to compare: the documents' adapters, and random small ones.

Dyadic numbers of few bits keep every product and sum exact on both sides, so equal magnitudes and zero sums are really
equal; their coefficients are squares, whose roots are exact too. Normal numbers have no such ties.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

from blake3 import blake3
from hypothesis import strategies as st

import oracles.routed.composition_merge as composition
from oracles.matrix import Matrix, frobenius, matrix
from schemas.methods import (
    Choices,
    DareChoices,
    DtypeChoices,
    Method,
    PruneChoices,
    Space,
    SvdChoices,
    TiesChoices,
)
from tests.witness.reference import Case, Pair, Plain, factorwise

FIXTURE: Final = composition.CompositionFixture.model_validate_json(
    Path(composition.__file__).with_suffix(".json").read_text("utf-8")
)
EXACT: Final = DtypeChoices(store="float64")
METHODS: Final[tuple[tuple[Method, Space], ...]] = (
    ("cat", "delta"),
    ("delta_svd", "delta"),
    ("ties", "delta"),
    ("ties", "factor"),
    ("dare_linear", "delta"),
    ("dare_linear", "factor"),
    ("dare_ties", "delta"),
    ("dare_ties", "factor"),
    ("factor_linear", "factor"),
    ("magnitude_prune", "delta"),
    ("magnitude_prune", "factor"),
)
TIES_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "k_rule": ("floor", "round"),
    "elect": ("total", "frequency"),
    "values": ("unweighted", "weighted"),
    "zero_sum": ("zero", "plus"),
    "reduce": ("count", "weight_sum", "sum"),
}


def ties_grid(density: float) -> tuple[TiesChoices, ...]:
    """Every combination of TIES choices, 48 of them."""
    every = (dict(zip(TIES_WORDS, words, strict=True)) for words in product(*TIES_WORDS.values()))
    return tuple(TiesChoices.model_validate_json(json.dumps({"density": density, **words})) for words in every)


def adapter(name: str) -> str:
    """A digest that stands for an adapter."""
    return f"blake3:{blake3(name.encode()).hexdigest()}"


def identity_order(members: list[Plain]) -> tuple[Plain, ...]:
    """Members of a static fusion are sorted by digest."""
    return tuple(sorted(members, key=lambda m: m.adapter))


def document_members() -> tuple[Plain, ...]:
    """The two adapters of R 0x05B, in the document's order."""
    return tuple(Plain(adapter(str(i)), a.weight, a.alpha / len(a.A), a.B, a.A) for i, a in enumerate(FIXTURE.adapters))


def as_members(*deltas: Matrix, weights: tuple[float, ...] = ()) -> tuple[Plain, ...]:
    """Members whose deltas are the given matrices: A is the identity."""
    unit = [tuple(float(i == j) for j in range(len(deltas[0][0]))) for i in range(len(deltas[0][0]))]
    used = weights or (1.0,) * len(deltas)
    return tuple(
        Plain(adapter(str(i)), w, 1.0, d, matrix(unit)) for i, (d, w) in enumerate(zip(deltas, used, strict=True))
    )


@dataclass(frozen=True)
class Numbers:
    """How entries and coefficients are drawn."""

    entries: str

    def entry(self, source: Random) -> float:
        """One entry of a factor."""
        return source.randint(-4, 4) / 4 if self.entries == "dyadic" else source.gauss(0.0, 1.0)

    def coefficient(self, source: Random) -> float:
        """A weight or a scale, in squares of dyadic numbers or within 0.1 to 3."""
        if self.entries == "dyadic":
            return source.choice((0.25, 1.0, 4.0))
        return source.uniform(0.1, 3.0)


def draw_matrix(source: Random, numbers: Numbers, rows: int, columns: int) -> Matrix:
    """A random matrix."""
    return matrix([[numbers.entry(source) for _ in range(columns)] for _ in range(rows)])


def draw_members(source: Random, numbers: Numbers, *, same_rank: bool) -> tuple[Plain, ...]:
    """One to four members of one small random shape; ranks differ unless the space forbids it."""
    d_out, d_in, count = source.randint(1, 7), source.randint(1, 7), source.randint(1, 4)
    rank = source.randint(1, 3)
    members = []
    for index in range(count):
        r = rank if same_rank else source.randint(1, 3)
        weight = numbers.coefficient(source) * source.choice((1.0, 1.0, -1.0))
        B, A = draw_matrix(source, numbers, d_out, r), draw_matrix(source, numbers, r, d_in)
        members.append(Plain(adapter(str(index)), weight, numbers.coefficient(source), B, A))
    return identity_order(members)


def draw_choices(source: Random) -> Choices:
    """One random value for every choice there is, stored without rounding."""
    density = source.choice((0.25, 0.5, 0.6, 1.0))
    return Choices(
        ties=source.choice(ties_grid(density)),
        dare=DareChoices(density=source.choice((0.25, 0.5, 0.9, 1.0)), seed=str(source.randrange(2**64))),
        prune=PruneChoices(density=density, k_rule=source.choice(("floor", "round"))),
        svd=SvdChoices(split=source.choice(("b", "sqrt")), mode=source.choice(("certified", "exact"))),
        dtype=EXACT,
    )


def draw_case(method: Method, space: Space, entries: str, seed: int) -> Case:
    """One random case."""
    source = Random(seed)
    members = draw_members(source, Numbers(entries), same_rank=space == "factor")
    d_out, d_in = len(members[0].B), len(members[0].A[0])
    limit = min(d_out, d_in)
    if method == "delta_svd":
        limit = min(limit, sum(len(m.A) for m in members))
    return Case(method, space, members, draw_choices(source), source.randint(1, limit))


def is_regular(case: Case) -> bool:
    """Whether no product vanishes inside its own factors: relative figures of one that does are rounding."""
    pairs = [Pair(m.B, m.A) for m in case.members]
    if case.space == "factor":
        pairs.append(factorwise(case).pair)
    return all(frobenius(p.delta) >= VANISHING * frobenius(p.B) * frobenius(p.A) for p in pairs)


VANISHING: Final = 1e-3
SEEDS: Final = st.integers(0, 2**32 - 1)
ENTRIES: Final = st.sampled_from(("dyadic", "normal"))
