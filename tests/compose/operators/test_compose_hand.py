"""The printed numbers of R 0x05, every TIES choice by hand, and the edges of each operator."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import Tensor

from compose.fields import Dropped, TensorField, Trimmed
from compose.masks import KeepMask
from compose.merge import merge
from compose.module import ModuleInput, ModuleOutput
from compose.operators import OPERATORS
from compose.operators.cat import cat
from compose.operators.dare import dare_linear_delta, dare_linear_factor, dare_ties_delta, dare_ties_factor
from compose.operators.delta_svd import delta_svd
from compose.operators.dense_sum import dense_sum
from compose.operators.factor_linear import factor_linear
from compose.operators.factorwise import split_coefficient
from compose.operators.magnitude_prune import magnitude_prune_delta, magnitude_prune_factor
from compose.operators.ties import ties_delta, ties_factor
from schemas.methods import DareChoices, DtypeChoices, PruneChoices, SvdChoices, TiesChoices, ties_preset
from tests.compose.building import EXACT, Pair, as_delta, matrix, module_input, product, random_pair

E1: Pair = (matrix([[1, 0]]), matrix([[1], [0]]))
E2: Pair = (matrix([[0, 1]]), matrix([[0], [1]]))
WITNESS = (1.0, -0.5)
ROOT = sqrt(0.5)


def test_cat_reconstructs_the_witness_without_error() -> None:
    output = cat(module_input([E1, E2], weights=WITNESS, rank=2))
    assert output.a.tolist() == [[1, 0], [0, -0.5]]
    assert output.b.tolist() == [[1, 0], [0, 1]]
    assert output.figures.error == 0.0
    assert output.figures.numerical_rank == 2
    assert output.figures.singular_values == pytest.approx((1.0, 0.5), abs=1e-15)
    assert output.figures.norm == pytest.approx(sqrt(1.25))


def test_cat_keeps_the_bytes_of_a_where_nothing_scales_it() -> None:
    a, b = random_pair(2, 3, 4, seed=1, dtype=torch.float32)
    output = cat(module_input([(a, b)], dtype=DtypeChoices(store="float32")))
    assert torch.equal(output.a.view(torch.int32), a.view(torch.int32))
    assert torch.equal(output.b.view(torch.int32), b.view(torch.int32))


def test_delta_svd_at_rank_one_loses_one_half_of_the_witness() -> None:
    output = delta_svd(module_input([E1, E2], weights=WITNESS, rank=1))
    torch.testing.assert_close(product(output), matrix([[1, 0], [0, 0]]), rtol=0, atol=1e-15)
    assert output.figures.error == pytest.approx(0.5)
    assert output.figures.discarded_energy == pytest.approx(0.25)


def test_delta_svd_is_exact_once_the_rank_suffices_and_fixes_its_signs() -> None:
    output = delta_svd(module_input([E1, E2], weights=WITNESS, rank=2))
    torch.testing.assert_close(product(output), matrix([[1, 0], [0, -0.5]]), rtol=0, atol=1e-15)
    assert output.a.gather(1, output.a.abs().argmax(dim=1, keepdim=True)).min().item() > 0
    assert output.figures.error == pytest.approx(0.0, abs=1e-15)


def test_a_split_singular_value_stands_half_on_each_side() -> None:
    whole = delta_svd(module_input([E1], scales=[4.0], rank=1))
    split = delta_svd(module_input([E1], scales=[4.0], rank=1, svd=SvdChoices(split="sqrt")))
    assert (torch.linalg.norm(whole.a).item(), torch.linalg.norm(whole.b).item()) == pytest.approx((1.0, 4.0))
    assert (torch.linalg.norm(split.a).item(), torch.linalg.norm(split.b).item()) == pytest.approx((2.0, 2.0))


def test_factor_linear_shows_the_printed_cross_terms() -> None:
    output = factor_linear(module_input([E1, E2], weights=WITNESS))
    torch.testing.assert_close(output.a, matrix([[1, -ROOT]]))
    torch.testing.assert_close(output.b, matrix([[1], [ROOT]]))
    torch.testing.assert_close(product(output), matrix([[1, -ROOT], [ROOT, -0.5]]))
    assert output.figures.cross_term_norm == pytest.approx(1.0)
    assert output.figures.deviation == pytest.approx(1.0)


def test_factor_linear_moves_with_the_gauge_of_a_member() -> None:
    plain = factor_linear(module_input([E1, E2], weights=WITNESS))
    other = factor_linear(module_input([E1, (2 * E2[0], E2[1] / 2)], weights=WITNESS))
    change = product(other) - product(plain)
    assert change.abs().max().item() == pytest.approx(ROOT)
    assert plain.figures.gauge_sensitivity == pytest.approx(
        (torch.linalg.norm(change) / torch.linalg.norm(product(plain))).item()
    )


def test_the_coefficient_is_split_with_its_sign_on_a() -> None:
    assert split_coefficient(-4.0) == (-2.0, 2.0)
    assert split_coefficient(0.25) == (0.5, 0.5)


LOOP_6 = ([4.0, 1.0, -2.0, 0.5], [0.5, -3.0, -3.0, 1.0], [-1.0, 2.0, 0.5, 0.1])


def test_ties_on_the_fixture_vectors_gives_the_printed_merge() -> None:
    fields = [Trimmed(TensorField(matrix([vector])), ties_preset("paper", 0.5)) for vector in LOOP_6]
    merged = merge(fields, [1.0, 1.0, 1.0], ties_preset("paper", 0.5))
    assert merged.values.tolist() == [[4.0, -3.0, -2.5, 0.0]]
    assert merged.retained == [2, 2, 2]
    assert merged.conflict == (2, 3)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (ties_preset("paper", 1.0), -3.0),
        (ties_preset("peft", 1.0), -3.0),
        (TiesChoices(density=1.0, elect="frequency", zero_sum="plus"), 4.0),
        (TiesChoices(density=1.0, elect="frequency", zero_sum="zero"), 0.0),
        (ties_preset("mergekit", 1.0), 2.0),
        (TiesChoices(density=1.0, values="weighted", reduce="sum"), 4.0),
    ],
)
def test_ties_choices_differ_on_two_and_minus_three(choices: TiesChoices, expected: float) -> None:
    pairs = [as_delta(matrix([[2.0]])), as_delta(matrix([[-3.0]]))]
    output = ties_delta(module_input(pairs, weights=[2.0, 1.0], ties=choices))
    assert product(output).item() == pytest.approx(expected)
    assert output.figures.conflict == (1, 1)


@pytest.mark.parametrize(("zero_sum", "expected"), [("zero", 0.0), ("plus", 2.0)])
def test_a_zero_sum_elects_by_its_named_rule(zero_sum: str, expected: float) -> None:
    choices = TiesChoices(density=1.0).model_copy(update={"zero_sum": zero_sum})
    pairs = [as_delta(matrix([[2.0]])), as_delta(matrix([[-2.0]]))]
    assert product(ties_delta(module_input(pairs, ties=choices))).item() == pytest.approx(expected)


def test_weights_that_cancel_do_not_divide() -> None:
    choices = ties_preset("mergekit", 1.0)
    pairs = [as_delta(matrix([[2.0]])), as_delta(matrix([[-3.0]]))]
    # Weighted 2 and 3 agree; their weights 1 and -1 sum to nothing.
    output = ties_delta(module_input(pairs, weights=[1.0, -1.0], ties=choices))
    assert product(output).item() == pytest.approx(5.0)


def test_twins_are_doubled_by_cat_and_kept_by_ties() -> None:
    pair = random_pair(2, 4, 3, seed=1)
    twins = module_input([pair, pair], rank=2, ties=ties_preset("paper", 1.0))
    torch.testing.assert_close(product(cat(twins)), 2 * pair[1] @ pair[0])
    torch.testing.assert_close(product(ties_delta(twins)), pair[1] @ pair[0])


def test_dare_on_the_printed_sample() -> None:
    mask = KeepMask(torch.tensor([0b0101], dtype=torch.uint8).numpy(), 4, 2)
    values = matrix([[2.0, -1.0, 0.5, 3.0]])
    sample = Dropped(TensorField(values), mask, 0.5).tile(0)
    assert sample.tolist() == [[4.0, 0.0, 1.0, 0.0]]
    assert (sample - values).abs().max().item() == 3.0


def test_dare_is_unbiased_over_seeds_and_prints_its_error() -> None:
    pair = random_pair(2, 12, 10, seed=3)
    exact = pair[1] @ pair[0]
    total = torch.zeros_like(exact)
    drawn = []
    for seed in range(60):
        output = dare_linear_delta(module_input([pair], rank=10, dare=DareChoices(density=0.8, seed=str(seed))))
        total += product(output)
        assert output.figures.deviation == pytest.approx(
            output.figures.drops[0].drawn * torch.linalg.norm(exact).item()
        )
        drawn.append(output.figures.drops[0].drawn)
    assert output.figures.drops[0].expected == pytest.approx(0.5)
    assert sum(drawn) / 60 == pytest.approx(0.5, rel=0.05)
    assert (torch.linalg.norm(total / 60 - exact) / torch.linalg.norm(exact)).item() < 3 * 0.5 / sqrt(60)


def test_dare_in_factor_space_expects_the_larger_error() -> None:
    pair = random_pair(8, 60, 50, seed=4)
    output = dare_linear_factor(module_input([pair], rank=8, dare=DareChoices(density=0.5, seed="1")))
    drop, exact = output.figures.drops[0], pair[1] @ pair[0]
    assert drop.expected == pytest.approx(sqrt(3))
    assert drop.drawn == pytest.approx((torch.linalg.norm(product(output) - exact) / torch.linalg.norm(exact)).item())
    assert drop.drawn == pytest.approx(sqrt(3), rel=0.3)
    assert [mask.role for mask in output.masks] == ["a", "b"]


def test_dare_ties_trims_what_was_dropped_when_asked_to() -> None:
    pair = random_pair(3, 20, 16, seed=5)
    dare = DareChoices(density=0.5, seed="1")
    whole = dare_ties_delta(module_input([pair], rank=4, dare=dare, ties=ties_preset("peft", 1.0)))
    trimmed = dare_ties_delta(module_input([pair], rank=4, dare=dare, ties=ties_preset("peft", 0.25)))
    assert whole.retained == (whole.masks[0].retained,)
    assert trimmed.retained == (80,)
    assert trimmed.masks == whole.masks
    assert trimmed.figures.drops == whole.figures.drops


def test_magnitude_prune_keeps_the_largest_of_each_member() -> None:
    pairs = [as_delta(matrix([[4.0, 1.0], [-3.0, 0.5]])), as_delta(matrix([[0.1, 0.2], [0.3, 0.4]]))]
    output = magnitude_prune_delta(module_input(pairs, weights=[1.0, 10.0], rank=2, prune=PruneChoices(density=0.5)))
    torch.testing.assert_close(product(output), matrix([[4.0, 0.0], [0.0, 4.0]]))
    assert output.retained == (2, 2)


def test_dense_sum_tiles_make_the_exact_sum() -> None:
    pairs = [random_pair(2, 700, 300, seed=1), random_pair(3, 700, 300, seed=2)]
    module = module_input(pairs, weights=[1.0, -0.5], scales=[2.0, 4.0])
    tiles = list(dense_sum(module))
    assert len(tiles) > 1
    whole = torch.cat([tile for _, tile in tiles])
    torch.testing.assert_close(whole, 2 * pairs[0][1] @ pairs[0][0] - 2 * pairs[1][1] @ pairs[1][0])


def every_operator(pairs: list[Pair], rank: int, density: float) -> dict[str, ModuleOutput]:
    """The outputs of all operators that take these pairs."""
    module = module_input(
        pairs,
        rank=rank,
        ties=ties_preset("paper", density),
        dare=DareChoices(density=density, seed="3"),
        prune=PruneChoices(density=density),
    )
    return {f"{method} {space}": operator(module) for (method, space), operator in OPERATORS.items()}


def test_a_zero_matrix_stays_zero_everywhere() -> None:
    zero: Pair = (torch.zeros(2, 5, dtype=torch.float64), torch.zeros(6, 2, dtype=torch.float64))
    for name, output in every_operator([zero, zero], 2, 0.5).items():
        assert not product(output).any(), name
        assert output.figures.norm == 0.0, name
        assert output.figures.gauge_sensitivity is None, name


def test_one_element_and_rank_one_work_everywhere() -> None:
    single: Pair = (matrix([[2.0]]), matrix([[3.0]]))
    for name, output in every_operator([single], 1, 1.0).items():
        assert product(output).item() == pytest.approx(6.0), name
        assert (output.a.shape, output.b.shape) == ((1, 1), (1, 1)), name


def test_a_density_too_small_for_one_coordinate_keeps_none() -> None:
    pair = random_pair(1, 3, 3, seed=1)
    ties, prune = ties_preset("paper", 0.1), PruneChoices(density=0.1)
    for operator in (ties_delta, ties_factor, magnitude_prune_delta, magnitude_prune_factor):
        output = operator(module_input([pair], ties=ties, prune=prune))
        assert not product(output).any()
        assert not any(output.retained)


def dense_reference(module: ModuleInput) -> Tensor:
    """The exact weighted sum, built densely."""
    return sum((f.coefficient * f.b.double() @ f.a.double() for f in module.factors), torch.tensor(0.0))


def test_float32_work_is_close_and_float64_is_the_reference() -> None:
    pairs = [random_pair(4, 30, 20, seed=1, dtype=torch.float32), random_pair(4, 30, 20, seed=2, dtype=torch.float32)]
    for operator in (cat, delta_svd):
        module = module_input(pairs, weights=[0.3, 0.7], rank=8, dtype=DtypeChoices(work="float32", store="float32"))
        error = torch.linalg.norm(product(operator(module)) - dense_reference(module))
        assert 0 < error / torch.linalg.norm(dense_reference(module)) < 1e-5
        exact = module_input(pairs, weights=[0.3, 0.7], rank=8, dtype=EXACT)
        torch.testing.assert_close(product(operator(exact)), dense_reference(exact), rtol=1e-12, atol=1e-12)


def test_dare_ties_in_factor_space_elects_on_both_sides() -> None:
    pairs = [random_pair(2, 8, 6, seed=1), random_pair(2, 8, 6, seed=2)]
    dare = DareChoices(density=0.5, seed="1")
    output = dare_ties_factor(module_input(pairs, rank=2, dare=dare, ties=ties_preset("peft", 1.0)))
    assert output.figures.conflict is not None
    assert output.figures.conflict[1] <= 2 * 6 + 8 * 2
    assert output.retained == tuple(mask.retained for mask in output.masks)
