"""Every operator with its figures against the plain reference: on the documents' fixture and on random small shapes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Literal

import pytest
import torch
from hypothesis import assume, given, settings

import oracles.routed.composition_merge as composition
from compose.operators import OPERATORS
from compose.operators.dense_sum import dense_sum
from oracles.matrix import Matrix, distance, frobenius, matmul, matrix, scale, subtract
from schemas.methods import Choices, DareChoices, DtypeChoices, Method, Space, TiesChoices, ties_preset
from tests.witness.cases import (
    ENTRIES,
    EXACT,
    FIXTURE,
    METHODS,
    SEEDS,
    adapter,
    as_members,
    document_members,
    draw_case,
    is_regular,
    ties_grid,
)
from tests.witness.exact import exact_distance, exact_product, rounded
from tests.witness.harness import TOLERANCE, differences, module_of, operator_of, pair_of
from tests.witness.reference import (
    Case,
    Members,
    cat,
    delta_sum,
    expected,
    factor_weights,
    gauge_change,
    keep_mask,
    weighted_sum,
)

FEW = settings(max_examples=25, deadline=None, derandomize=True)


def test_every_operator_of_the_engine_has_a_reference() -> None:
    assert set(METHODS) == set(OPERATORS)


@pytest.mark.parametrize(("method", "space"), METHODS)
@FEW
@given(SEEDS, ENTRIES)
def test_an_operator_agrees_with_its_reference(method: Method, space: Space, seed: int, entries: str) -> None:
    case = draw_case(method, space, entries, seed)
    assume(is_regular(case))
    assert differences(case) == ()


@pytest.mark.parametrize(
    ("method", "space", "step"),
    [("ties", "delta", 1), ("ties", "factor", 5), ("dare_ties", "delta", 5), ("dare_ties", "factor", 5)],
)
def test_ties_agrees_under_every_combination_of_choices(method: Method, space: Space, step: int) -> None:
    # All 48 once; elsewhere a step of 5, which still meets every word of every choice.
    for index, choices in enumerate(ties_grid(0.5)[::step]):
        case = next(
            c for c in (draw_case(method, space, "dyadic", 100 * index + at) for at in range(100)) if is_wide(c)
        )
        case = replace(case, choices=case.choices.model_copy(update={"ties": choices}))
        assert differences(case) == (), choices


def is_wide(case: Case) -> bool:
    """Whether there is something to elect: at least three members and a dozen coordinates."""
    return len(case.members) > 2 and len(case.members[0].B) * len(case.members[0].A[0]) >= 12 and is_regular(case)


@pytest.mark.parametrize("preset", ["paper", "peft", "mergekit"])
@pytest.mark.parametrize("space", ["delta", "factor"])
def test_a_preset_agrees_with_its_reference(preset: Literal["paper", "peft", "mergekit"], space: Space) -> None:
    for density, seed in product((0.25, 0.75, 1.0), range(3)):
        case = draw_case("ties", space, "normal", seed)
        choices = Choices(ties=ties_preset(preset, density), dtype=EXACT)
        assert differences(replace(case, choices=choices)) == (), (density, seed)


@FEW
@given(SEEDS, ENTRIES)
def test_dense_tiles_are_the_sum_of_the_deltas(seed: int, entries: str) -> None:
    case = draw_case("cat", "delta", entries, seed)
    tiles = torch.cat([tile for _, tile in dense_sum(module_of(case))])
    size = sum(m.size for m in case.members)
    assert distance(matrix(tiles.tolist()), delta_sum(case.members)) <= TOLERANCE * size


NARROW = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize(("method", "space"), METHODS)
@pytest.mark.parametrize("store", NARROW)
def test_storing_rounds_once_and_the_ledger_knows_by_how_much(
    method: Method, space: Space, store: Literal["float32", "bfloat16", "float16"]
) -> None:
    for seed in range(4):
        case = draw_case(method, space, "normal", seed)
        output = operator_of(case)(module_of(case))
        choices = case.choices.model_copy(update={"dtype": DtypeChoices(store=store)})
        stored = operator_of(case)(module_of(replace(case, choices=choices)))
        before, after = pair_of(output), pair_of(stored)
        assert all_rounded(before.A, store) == after.A
        assert all_rounded(before.B, store) == after.B
        lost = exact_distance(exact_product(before.B, before.A), exact_product(after.B, after.A))
        assert stored.figures.rounding == pytest.approx(lost, rel=TOLERANCE)
        truth = expected(case)
        missed = frobenius(subtract(truth.target, after.delta)) if truth.pair is None else lost
        assert abs(stored.figures.error - missed) <= TOLERANCE * truth.size


def all_rounded(values: Matrix, store: str) -> Matrix:
    """Every entry rounded once."""
    return tuple(tuple(rounded(x, store) for x in row) for row in values)


def oracle_cases() -> dict[str, Case]:
    """The adapters of R 0x05B under every sum, and the vectors of R 0x05E."""
    members, plain = document_members(), Choices(dtype=EXACT)
    vectors = as_members(*((vector,) for vector in FIXTURE.ties.vectors))
    elect = Choices(ties=ties_preset("paper", FIXTURE.ties.density), dtype=EXACT)
    return {
        "cat": Case("cat", "delta", members, plain),
        "svd": Case("delta_svd", "delta", members, plain, FIXTURE.svd.rank),
        "linear": Case("factor_linear", "factor", members, plain),
        "ties": Case("ties", "delta", vectors, elect),
    }


@pytest.mark.parametrize("name", ["cat", "svd", "linear", "ties"])
def test_the_engine_agrees_on_the_fixture_of_the_document(name: str) -> None:
    assert differences(oracle_cases()[name]) == ()


def test_reference_and_oracle_are_two_programs_with_one_result() -> None:
    members, adapters = document_members(), FIXTURE.adapters
    assert delta_sum(members) == composition.delta_sum(adapters)
    assert tuple(cat(members)) == composition.cat(adapters, "A")
    assert linear(members) == composition.factor_linear(adapters, "A")
    printed = ((4.0, -3.0, -2.5, 0.0),)
    assert expected(oracle_cases()["ties"]).target == printed
    gauge = FIXTURE.gauge
    chosen = members[gauge.adapter]
    other = replace(chosen, A=scale(gauge.A_factor, chosen.A), B=scale(gauge.B_factor, chosen.B))
    moved = linear((members[0], other))
    assert moved == composition.factor_linear(composition.regauged(adapters, gauge), "A")
    assert distance(matmul(*moved), matmul(*linear(members))) == pytest.approx(0.5**0.5, abs=TOLERANCE)


def linear(members: Members) -> tuple[Matrix, Matrix]:
    """The factor pair of a linear combination."""
    for_a, for_b = factor_weights(members)
    return weighted_sum([m.B for m in members], for_b), weighted_sum([m.A for m in members], for_a)


def test_the_printed_figures_of_the_document_stand_in_the_ledger() -> None:
    cases = oracle_cases()
    figures = {name: operator_of(case)(module_of(case)).figures for name, case in cases.items()}
    assert (figures["cat"].error, figures["cat"].numerical_rank) == (0.0, 2)
    assert figures["svd"].error == pytest.approx(0.5, abs=TOLERANCE)
    assert figures["linear"].cross_term_norm == pytest.approx(1.0, abs=TOLERANCE)
    # Both off-diagonal entries of the second member's cross terms move, one by .7071 and one by half of it.
    assert gauge_change(cases["linear"]) == pytest.approx((0.5 + 0.125) ** 0.5, abs=TOLERANCE)


def test_dare_draws_the_printed_sample_from_a_seed_that_gives_its_mask() -> None:
    dare = FIXTURE.dare
    wanted = tuple(bool(z) for z in dare.z)
    seed = next(str(n) for n in range(200) if keep_mask(str(n), adapter("0"), "m", "delta", dare.q, 4) == wanted)
    choices = Choices(dare=DareChoices(density=dare.q, seed=seed), dtype=EXACT)
    case = Case("dare_linear", "delta", as_members((dare.delta,)), choices)
    assert differences(case) == ()
    assert distance(pair_of(operator_of(case)(module_of(case))).delta, ((4.0, 0.0, 1.0, 0.0),)) <= TOLERANCE


WORKED = [
    (ties_preset("peft", 1.0), -3.0),
    (TiesChoices(density=1.0, elect="frequency", zero_sum="plus"), 4.0),
    (ties_preset("mergekit", 1.0), 2.0),
    (TiesChoices(density=1.0, values="weighted", reduce="sum"), 4.0),
]


@pytest.mark.parametrize(("choices", "merged"), WORKED)
def test_engine_and_reference_agree_that_two_and_minus_three_depend_on_the_choices(
    choices: TiesChoices, merged: float
) -> None:
    members = as_members(((2.0,),), ((-3.0,),), weights=(2.0, 1.0))
    case = Case("ties", "delta", members, Choices(ties=choices, dtype=EXACT))
    assert expected(case).target == ((merged,),)
    assert differences(case) == ()
