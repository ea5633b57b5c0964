"""Stacked experts: composed as one matrix each, and measured as the block-diagonal matrix they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from compose import ComposeRefusedError, Member, plan
from compose.compare import relative_difference
from schemas.digests import DTYPE_BYTES
from schemas.methods import DareChoices, DtypeChoices, PruneChoices, SvdChoices, ties_preset
from tests.compose.building import Pair, figures, matrix, member, random_pair, request, run, total

EXPERTS: Final = 3
TIES, DARE = ties_preset("paper", density=0.5), DareChoices(density=0.5, seed="17")
REFACTORED: Final[dict[str, Any]] = {"rank": 2, "svd": SvdChoices()}
METHODS: Final[dict[str, dict[str, Any]]] = {
    "cat": {},
    "delta_svd": REFACTORED,
    "ties": {"ties": TIES, **REFACTORED},
    "dare_linear": {"dare": DARE, **REFACTORED},
    "dare_ties": {"dare": DARE, "ties": TIES, **REFACTORED},
    "magnitude_prune": {"prune": PruneChoices(density=0.5, k_rule="floor"), **REFACTORED},
}
FACTOR: Final[dict[str, dict[str, Any]]] = {
    "factor_linear": {},
    "ties": {"ties": TIES},
    "dare_linear": {"dare": DARE},
    "dare_ties": {"dare": DARE, "ties": TIES},
    "magnitude_prune": {"prune": PruneChoices(density=0.5, k_rule="floor")},
}
CASES: Final = [(name, "delta", choices) for name, choices in METHODS.items()] + [
    (name, "factor", choices) for name, choices in FACTOR.items()
]


def stacked(pairs: list[Pair]) -> Pair:
    """``a [E r, d_in]`` with the expert outside, ``b [d_out, r E]`` with the expert inside."""
    a = torch.cat([pair[0] for pair in pairs])
    b = torch.einsum("eor->ore", torch.stack([pair[1] for pair in pairs])).flatten(1)
    return a, b


def deltas(tensors: Mapping[str, Tensor], experts: int = EXPERTS) -> Tensor:
    """``[E, d_out, d_in]`` of a written file, by the documented contraction."""
    a, b = tensors["m.lora_A"].double(), tensors["m.lora_B"].double()
    product: Tensor = torch.einsum(
        "ore,eri->eoi", b.reshape(b.shape[0], -1, experts), a.reshape(experts, -1, a.shape[1])
    )
    return product


def as_stack(given: Member, experts: int = EXPERTS) -> Member:
    """A member whose factors are stacked."""
    factors = tuple(replace(item, rank=item.rank // experts, experts=experts) for item in given.factors)
    return replace(given, factors=factors)


def drawn(ranks: tuple[int, ...]) -> list[list[Pair]]:
    """By member, one pair an expert."""
    return [
        [random_pair(rank, 12, 10, seed=100 * start + expert) for expert in range(EXPERTS)]
        for start, rank in enumerate(ranks, 1)
    ]


def both_ways(folder: Path, ranks: tuple[int, ...]) -> tuple[list[Member], list[Member]]:
    """The same members with stacked experts, and with a module for each expert, named as masks name it."""
    one, other = [], []
    for name, pairs, weight in zip(("one", "two"), drawn(ranks), (0.75, -1.5), strict=True):
        one.append(as_stack(member(folder, f"{name}", {"m": stacked(pairs)}, weight=weight, scale=2.0)))
        apart = {f"m#{expert}": pair for expert, pair in enumerate(pairs)}
        (folder / "apart").mkdir(exist_ok=True)
        other.append(member(folder / "apart", name, apart, weight=weight, scale=2.0))
    return one, other


@pytest.mark.parametrize(("method", "space", "choices"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_a_stack_is_composed_as_its_experts_are_apart(
    tmp_path: Path, method: Any, space: Any, choices: dict[str, Any]
) -> None:
    stack, apart = both_ways(tmp_path, (2, 3) if space == "delta" else (2, 2))
    result, found = run(request(method, stack, space=space, **choices), tmp_path / "stack.safetensors")
    reference, each = run(request(method, apart, space=space, **choices), tmp_path / "apart.safetensors")
    for expert in range(EXPERTS):
        wanted = each[f"m#{expert}.lora_B"] @ each[f"m#{expert}.lora_A"]
        torch.testing.assert_close(deltas(found)[expert], wanted, rtol=1e-13, atol=1e-13)
    (record,) = result.modules
    assert record.retained == tuple(map(sum, zip(*(item.retained for item in reference.modules), strict=True)))
    assert record.masks == tuple(mask for item in reference.modules for mask in item.masks)
    assert record.output_rank == reference.modules[0].output_rank
    # A total over one stacked module is the total over its experts but for counts of modules and ranks.
    apart_total, stack_total = total(reference), total(result)
    for key in ("norm", "error", "rounding", "discarded_energy", "deviation", "cross_term_norm", "gauge_sensitivity",
                "sign_conflict", "retained", "cosines", "numerical_rank"):  # fmt: skip
        wanted_figure = apart_total[key]
        if wanted_figure is not None:
            wanted_figure = pytest.approx(wanted_figure, rel=1e-8)
        assert stack_total[key] == wanted_figure, key


def test_two_experts_of_rank_one_by_hand(tmp_path: Path) -> None:
    # Expert 0 maps e0 to e0, expert 1 maps e1 to 3 e0; the other member maps e0 to e1 in expert 1 alone.
    one = stacked([(matrix([[1, 0]]), matrix([[1], [0]])), (matrix([[0, 1]]), matrix([[3], [0]]))])
    two = stacked([(matrix([[0, 0]]), matrix([[0], [0]])), (matrix([[1, 0]]), matrix([[0], [1]]))])
    members = [
        as_stack(member(tmp_path, name, {"m": pair}, weight=weight, scale=2.0), 2)
        for name, pair, weight in (("one", one, 0.5), ("two", two, -1.0))
    ]
    result, tensors = run(request("cat", members), tmp_path / "out")
    assert (tensors["m.lora_A"].shape, tensors["m.lora_B"].shape) == ((4, 2), (2, 4))
    assert deltas(tensors, 2).tolist() == [[[1, 0], [0, 0]], [[0, 3], [-2, 0]]]
    found = figures(result, "m")
    assert (found["input_ranks"], found["output_rank"], found["numerical_rank"]) == ([1, 1], 2, 3)
    assert found["singular_values"][:3] == pytest.approx([3.0, 2.0, 1.0], rel=1e-9)
    assert found["norm"] == pytest.approx(sqrt(14), rel=1e-9)
    assert found["cosines"] == [0.0]


def test_figures_are_those_of_the_dense_experts(tmp_path: Path) -> None:
    stack, _ = both_ways(tmp_path, (2, 3))
    result, tensors = run(request("delta_svd", stack, rank=2, dtype=DtypeChoices(store="bfloat16")), tmp_path / "out")
    dense = [torch.stack([2.0 * b @ a for a, b in pairs]) for pairs in drawn((2, 3))]
    exact, found = 0.75 * dense[0] - 1.5 * dense[1], figures(result, "m")
    assert found["norm"] == pytest.approx(float(exact.norm()), rel=1e-8)
    assert found["error"] == pytest.approx(float((exact - deltas(tensors)).norm()), rel=1e-8)
    values = torch.linalg.svdvals(exact)
    assert found["singular_values"] == pytest.approx(sorted(values.flatten().tolist(), reverse=True)[:8], rel=1e-8)
    assert found["discarded_energy"] == pytest.approx(float(values[:, 2:].square().sum()), rel=1e-8)
    cosine = float((dense[0] * dense[1]).sum() / dense[0].norm() / dense[1].norm())
    assert found["cosines"] == pytest.approx([cosine], rel=1e-8)


def test_the_drawn_error_of_a_member_is_that_of_all_its_experts(tmp_path: Path) -> None:
    stack, apart = both_ways(tmp_path, (2, 2))
    choices: dict[str, Any] = {"dare": DARE, **REFACTORED}
    drops = figures(run(request("dare_linear", stack, **choices), tmp_path / "s")[0], "m")["drops"]
    each, _ = run(request("dare_linear", apart, **choices), tmp_path / "a")
    for index, pairs in enumerate(drawn((2, 2))):
        energies = [float((b @ a).square().sum()) for a, b in pairs]
        own = [figures(each, f"m#{expert}")["drops"][index]["drawn"] for expert in range(EXPERTS)]
        lost = sum(value**2 * energy for value, energy in zip(own, energies, strict=True))
        assert drops[index]["drawn"] == pytest.approx(sqrt(lost / sum(energies)), rel=1e-8)
        assert drops[index]["expected"] == 1.0


def test_members_of_other_numbers_of_experts_are_refused(tmp_path: Path) -> None:
    one = as_stack(member(tmp_path, "one", {"m": random_pair(6, 4, 4, seed=1)}))
    two = as_stack(member(tmp_path, "two", {"m": random_pair(6, 4, 4, seed=2)}), 2)
    with pytest.raises(ComposeRefusedError) as refused:
        plan(request("cat", [one, two]))
    assert [(problem.code, problem.observed) for problem in refused.value.problems] == [
        ("MODULE_EXPERTS_DIFFER", "2, 3")
    ]
    odd = replace(one, factors=(replace(one.factors[0], rank=1),))
    with pytest.raises(ComposeRefusedError, match="FACTOR_SHAPE"):
        plan(request("cat", [odd]))


def test_a_stack_is_planned_with_all_its_experts(tmp_path: Path) -> None:
    stack, apart = both_ways(tmp_path, (2, 3))
    whole, parts = plan(request("cat", stack)), plan(request("cat", apart))
    assert (whole.bytes_read, whole.flops) == (parts.bytes_read, parts.flops)
    assert whole.output_size >= EXPERTS * 5 * (12 + 10) * DTYPE_BYTES["F64"]


def test_the_distance_of_two_stacks_is_that_of_their_experts(tmp_path: Path) -> None:
    (one, two), _ = both_ways(tmp_path, (2, 3))
    (left, right) = (item.factors[0] for item in (one, two))
    dense = [torch.stack([2.0 * b @ a for a, b in pairs]) for pairs in drawn((2, 3))]
    wanted = float((dense[0] - dense[1]).norm() / dense[0].norm())
    assert relative_difference(left, right) == pytest.approx(wanted, rel=1e-10)
    assert relative_difference(left, left) < 1e-12
    assert relative_difference(left, replace(right, experts=None, rank=9)) == inf
