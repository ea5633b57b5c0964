"""Algebra laws of the operators (identity, permutation, scaling, gauge, repetition), and figures against dense ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as combinations
from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compose.fields import TensorField
from compose.merge import merge
from compose.module import ModuleInput
from compose.operators import OPERATORS
from compose.operators.cat import cat
from compose.operators.delta_svd import delta_svd
from compose.operators.factor_linear import factor_linear
from compose.operators.ties import ties_delta
from schemas.methods import DareChoices, DtypeChoices, PruneChoices, TiesChoices, ties_preset
from tests.compose.building import Pair, module_input, product, random_pair

LAW = settings(max_examples=30, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
COEFFICIENTS = st.floats(-4, 4).filter(lambda value: value == 0 or abs(value) > 1e-3)


@dataclass(frozen=True)
class Drawn:
    """One to four members of small random shapes."""

    pairs: list[Pair]
    weights: list[float]
    scales: list[float]
    rank: int

    def build(self) -> ModuleInput:
        return module_input(self.pairs, weights=self.weights, scales=self.scales, rank=self.rank)


@st.composite
def modules(draw: st.DrawFn, same_rank: bool = False) -> Drawn:
    """A module to build inside the test: the shape checker draws random numbers of its own."""
    d_out, d_in, count = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 4))
    rank = draw(st.integers(1, 4))
    ranks = [rank if same_rank else draw(st.integers(1, 4)) for _ in range(count)]
    pairs = [random_pair(each, d_out, d_in, draw(SEEDS)) for each in ranks]
    weights, scales = ([draw(COEFFICIENTS) for _ in range(count)] for _ in range(2))
    return Drawn(pairs, weights, scales, min(d_out, d_in, sum(ranks)))


def exact_sum(module: ModuleInput) -> Tensor:
    """``sum c_i B_i A_i`` built densely."""
    d_out, d_in = module.shape
    total = torch.zeros(d_out, d_in, dtype=torch.float64)
    for factor in module.factors:
        total += factor.coefficient * factor.b @ factor.a
    return total


def size(module: ModuleInput) -> float:
    """What rounding is relative to."""
    largest: float = sum(abs(f.coefficient) * torch.linalg.norm(f.b @ f.a).item() for f in module.factors)
    return largest + 1e-300


def close(left: Tensor, right: Tensor, module: ModuleInput, tolerance: float = 1e-12) -> bool:
    return bool(torch.linalg.norm(left - right).item() <= tolerance * size(module))


def permuted(module: ModuleInput) -> ModuleInput:
    return ModuleInput(module.module, module.factors[::-1], module.choices, module.rank)


@LAW
@given(modules())
def test_cat_and_full_rank_svd_are_the_exact_sum(drawn: Drawn) -> None:
    module = drawn.build()
    for operator in (cat, delta_svd):
        output = operator(module)
        assert close(product(output), exact_sum(module), module)
        assert abs(output.figures.norm - torch.linalg.norm(exact_sum(module)).item()) <= 1e-12 * size(module)
        assert output.figures.error <= 1e-12 * size(module)


@LAW
@given(modules(), st.data())
def test_a_truncation_discards_exactly_the_tail_of_the_spectrum(drawn: Drawn, data: st.DataObject) -> None:
    module = drawn.build()
    rank = data.draw(st.integers(1, module.rank))
    output = delta_svd(ModuleInput(module.module, module.factors, module.choices, rank))
    values = torch.linalg.svdvals(exact_sum(module))
    tail = values[rank:].square().sum().item()
    assert output.a.shape[0] == rank
    assert output.figures.discarded_energy == pytest.approx(tail, rel=1e-9, abs=1e-20 * size(module) ** 2)
    assert output.figures.error == pytest.approx(sqrt(tail), rel=1e-9, abs=1e-12 * size(module))


@LAW
@given(modules(same_rank=True))
def test_the_order_of_members_does_not_matter(drawn: Drawn) -> None:
    module = drawn.build()
    for operator in (cat, delta_svd):
        assert close(product(operator(module)), product(operator(permuted(module))), module)
    first, second = factor_linear(module), factor_linear(permuted(module))
    torch.testing.assert_close(first.a, second.a, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(first.b, second.b, rtol=1e-12, atol=1e-12)


@LAW
@given(modules(), st.sampled_from([-2.0, -1.0, 0.5, 4.0]))
def test_a_common_weight_scales_the_sum(drawn: Drawn, factor: float) -> None:
    module = drawn.build()
    scaled = replace(drawn, weights=[weight * factor for weight in drawn.weights]).build()
    for operator in (cat, delta_svd):
        assert close(product(operator(scaled)), factor * product(operator(module)), scaled)


@LAW
@given(modules(), SEEDS)
def test_the_gauge_of_a_member_does_not_matter_to_a_sum(drawn: Drawn, seed: int) -> None:
    module = drawn.build()
    pairs = []
    for index, factor in enumerate(module.factors):
        generator = torch.Generator().manual_seed(seed + index)
        gauge = torch.linalg.qr(torch.randn(factor.rank, factor.rank, generator=generator, dtype=torch.float64)).Q * 3
        pairs.append((gauge @ factor.a, factor.b @ torch.linalg.inv(gauge)))
    turned = replace(drawn, pairs=pairs).build()
    for operator in (cat, delta_svd):
        assert close(product(operator(turned)), product(operator(module)), module, tolerance=1e-10)


@LAW
@given(modules(same_rank=True))
def test_one_member_alone_is_the_identity_in_both_spaces(drawn: Drawn) -> None:
    module = drawn.build()
    alone = ModuleInput(module.module, module.factors[:1], module.choices, min(*module.shape, module.factors[0].rank))
    for operator in (cat, delta_svd, factor_linear):
        assert close(product(operator(alone)), exact_sum(alone), alone)


@LAW
@given(modules())
def test_cosines_come_from_the_inner_products_of_the_deltas(drawn: Drawn) -> None:
    module = drawn.build()
    deltas = [factor.scale * factor.b @ factor.a for factor in module.factors]
    expected = [[(one * other).sum().item() for other in deltas] for one in deltas]
    largest = max(abs(value) for row in expected for value in row)
    for row, found in zip(expected, cat(module).figures.products, strict=True):
        assert found == pytest.approx(row, rel=1e-9, abs=1e-12 * largest)


@LAW
@given(modules(), st.sampled_from(["bfloat16", "float16", "float32"]))
def test_rounding_is_the_distance_between_exact_and_stored(drawn: Drawn, store: str) -> None:
    module = drawn.build()
    choices = module.choices.model_copy(update={"dtype": DtypeChoices().model_copy(update={"store": store})})
    for operator in (cat, delta_svd):
        output = operator(ModuleInput(module.module, module.factors, choices, module.rank))
        distance = torch.linalg.norm(product(output) - exact_sum(module)).item()
        assert output.figures.error == pytest.approx(distance, rel=1e-6, abs=1e-12 * size(module))
        assert output.figures.rounding == pytest.approx(distance, rel=1e-6, abs=1e-12 * size(module))


def peft_like(tensors: list[Tensor], weights: list[float], choices: TiesChoices) -> Tensor:
    """TIES by its definition, one coordinate at a time."""
    out = []
    for values in zip(*(tensor.flatten().tolist() for tensor in tensors), strict=True):
        votes = [v * w for v, w in zip(values, weights, strict=True)] if choices.values == "weighted" else list(values)
        signs = [(v > 0) - (v < 0) for v in votes]
        balance = sum(signs) if choices.elect == "frequency" else sum(votes)
        elected = (balance > 0) - (balance < 0) or (1 if choices.zero_sum == "plus" else 0)
        aligned = [
            (v * w, w) for v, w, s in zip(values, weights, signs, strict=True) if s and s == elected and v * w != 0
        ]
        divisor = {"count": len(aligned), "weight_sum": sum(w for _, w in aligned), "sum": 1}[choices.reduce]
        out.append(sum(v for v, _ in aligned) / (divisor if abs(divisor) >= 1e-8 else 1))
    return torch.tensor(out, dtype=torch.float64).view(tensors[0].shape)


@LAW
@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=4),
    st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]), min_size=4, max_size=4),
)
def test_ties_follows_its_definition_under_every_choice(rows: list[list[int]], weights: list[float]) -> None:
    tensors = [torch.tensor(row, dtype=torch.float64).view(2, 3) for row in rows]
    used = weights[: len(rows)]
    for elect, values, zero_sum, reduce in combinations(
        ("total", "frequency"), ("unweighted", "weighted"), ("zero", "plus"), ("count", "weight_sum", "sum")
    ):
        update = {"elect": elect, "values": values, "zero_sum": zero_sum, "reduce": reduce}
        choices = TiesChoices(density=1.0).model_copy(update=update)
        merged = merge([TensorField(tensor) for tensor in tensors], used, choices)
        torch.testing.assert_close(merged.values, peft_like(tensors, used, choices), rtol=1e-14, atol=1e-14)


def test_a_trim_over_tiles_is_a_trim_of_the_whole() -> None:
    pairs = [random_pair(3, 900, 400, seed=1), random_pair(3, 900, 400, seed=2)]
    output = ties_delta(module_input(pairs, weights=[1.0, 0.5], rank=5, ties=ties_preset("peft", 0.2)))
    deltas = [pair[1] @ pair[0] for pair in pairs]
    k = int(0.2 * 900 * 400)
    trimmed = []
    for delta in deltas:
        order = delta.abs().flatten().argsort(descending=True, stable=True)[:k]
        kept = torch.zeros(900 * 400, dtype=torch.float64)
        kept[order] = delta.flatten()[order]
        trimmed.append(kept.view(900, 400))
    merged = merge([TensorField(each) for each in trimmed], [1.0, 0.5], ties_preset("peft", 1.0)).values
    values = torch.linalg.svdvals(merged)
    assert output.retained == (k, k)
    assert output.figures.norm == pytest.approx(torch.linalg.norm(merged).item(), rel=1e-12)
    assert output.figures.singular_values == pytest.approx(values[:5].tolist(), rel=1e-5)
    best = values[5:].square().sum().item()
    assert best * (1 - 1e-12) <= output.figures.discarded_energy <= best * (1 + 1e-5)
    assert output.figures.error == pytest.approx(torch.linalg.norm(merged - product(output)).item(), rel=1e-10)
    exact = deltas[0] + 0.5 * deltas[1]
    assert output.figures.deviation == pytest.approx(torch.linalg.norm(merged - exact).item(), rel=1e-10)


def whole_choices(pairs: list[Pair]) -> ModuleInput:
    return module_input(
        pairs,
        weights=[1.0, -0.5],
        rank=4,
        ties=ties_preset("mergekit", 0.4),
        dare=DareChoices(density=0.4, seed="5"),
        prune=PruneChoices(density=0.4),
    )


def test_repetition_gives_the_same_bits_and_leaves_the_inputs_alone() -> None:
    pairs = [random_pair(4, 300, 280, seed=1), random_pair(4, 300, 280, seed=2)]
    before = [(a.clone(), b.clone()) for a, b in pairs]
    for (method, space), operator in OPERATORS.items():
        first, second = operator(whole_choices(pairs)), operator(whole_choices(pairs))
        assert torch.equal(first.a, second.a), (method, space)
        assert torch.equal(first.b, second.b), (method, space)
        assert first.figures == second.figures, (method, space)
        assert first.figures.products.tolist() == second.figures.products.tolist(), (method, space)
    for (a, b), (old_a, old_b) in zip(pairs, before, strict=True):
        assert torch.equal(a, old_a)
        assert torch.equal(b, old_b)
