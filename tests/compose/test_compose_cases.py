"""What people ran into, each with the right value: scales, signs, ranks, module sets, rounding, gauge."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest
import torch

from compose import ComposeRefusedError, Options
from schemas.methods import DareChoices, DtypeChoices, Method, PruneChoices, ties_preset
from tests.compose.building import Pair, delta, matrix, member, random_pair, request, run, total

E1: Pair = (matrix([[1, 0]]), matrix([[1], [0]]))
E2: Pair = (matrix([[0, 1]]), matrix([[0], [1]]))


def test_a_scale_is_applied_once(tmp_path: Path) -> None:
    one = member(tmp_path, "one", {"m": E1}, weight=0.5, scale=2.0)
    for asked in (request("cat", [one, one]), request("delta_svd", [one, one], rank=1)):
        _, tensors = run(asked, tmp_path / "out")
        assert delta(tensors)[0, 0].item() == pytest.approx(2.0, abs=1e-12)


def test_a_rank_stabilised_member_alone_gives_back_its_own_delta(tmp_path: Path) -> None:
    a, b = random_pair(4, 6, 5, seed=1)
    scale = 8 / sqrt(4)
    _, tensors = run(request("cat", [member(tmp_path, "one", {"m": (a, b)}, scale=scale)]), tmp_path / "out")
    assert scale == 4.0
    torch.testing.assert_close(delta(tensors), 4.0 * b @ a, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("method", ["cat", "delta_svd", "ties", "magnitude_prune", "dare_linear", "dare_ties"])
def test_one_member_with_weight_one_is_the_identity_in_delta_space(tmp_path: Path, method: Method) -> None:
    a, b = random_pair(3, 7, 5, seed=2)
    one = member(tmp_path, "one", {"m": (a, b)}, scale=0.5)
    asked = request(
        method,
        [one],
        rank=None if method == "cat" else 3,
        ties=ties_preset("paper", 1.0) if "ties" in method else None,
        dare=DareChoices(density=1.0, seed="1") if "dare" in method else None,
        prune=PruneChoices(density=1.0) if "prune" in method else None,
    )
    _, tensors = run(asked, tmp_path / "out")
    torch.testing.assert_close(delta(tensors), 0.5 * b @ a, rtol=1e-12, atol=1e-12)


def test_factor_linear_reports_the_cross_terms_of_two_orthogonal_members(tmp_path: Path) -> None:
    members = [member(tmp_path, "one", {"m": E1}), member(tmp_path, "two", {"m": E2})]
    _, exact = run(request("cat", members), tmp_path / "cat.out")
    result, tensors = run(request("factor_linear", members, space="factor"), tmp_path / "linear.out")
    assert delta(exact).tolist() == [[1, 0], [0, 1]]
    assert delta(tensors).tolist() == [[1, 1], [1, 1]]
    assert total(result)["cross_term_norm"] == pytest.approx(sqrt(2), rel=1e-8)


def test_a_weight_of_minus_one_gives_minus_the_delta(tmp_path: Path) -> None:
    pair = random_pair(2, 4, 3, seed=3)
    plus, tensors = run(request("cat", [member(tmp_path, "one", {"m": pair})]), tmp_path / "plus")
    minus, negated = run(request("cat", [member(tmp_path, "one", {"m": pair}, weight=-1.0)]), tmp_path / "minus")
    assert torch.equal(delta(negated), -delta(tensors))
    assert total(plus)["norm"] == total(minus)["norm"]


def test_twins_with_opposite_weights_cancel_and_zero_weights_change_nothing(tmp_path: Path) -> None:
    pair, other = random_pair(2, 4, 3, seed=4), random_pair(2, 4, 3, seed=5)
    twins = [member(tmp_path, "x", {"m": pair}), member(tmp_path, "x", {"m": pair}, weight=-1.0)]
    result, tensors = run(request("cat", twins), tmp_path / "zero")
    assert delta(tensors).abs().max().item() < 1e-15
    assert total(result)["numerical_rank"] == 0
    trio = [twins[0], *(member(tmp_path, name, {"m": other}, weight=0.0) for name in "yz")]
    _, tensors = run(request("delta_svd", trio, rank=2), tmp_path / "first")
    torch.testing.assert_close(delta(tensors), pair[1] @ pair[0], rtol=1e-13, atol=1e-13)


def test_ranks_may_differ_by_module_except_in_factor_space(tmp_path: Path) -> None:
    pairs = {"l0": random_pair(2, 6, 5, seed=6), "l1": random_pair(3, 6, 5, seed=7)}
    others = {"l0": random_pair(4, 6, 5, seed=8), "l1": random_pair(3, 6, 5, seed=9)}
    members = [member(tmp_path, "one", pairs), member(tmp_path, "two", others)]
    result, tensors = run(request("cat", members), tmp_path / "cat")
    assert [(record.module, record.input_ranks, record.output_rank) for record in result.modules] == [
        ("l0", (2, 4), 6),
        ("l1", (3, 3), 6),
    ]
    torch.testing.assert_close(delta(tensors, "l0"), sum((p[1] @ p[0] for p in (pairs["l0"], others["l0"])), 0.0))
    with pytest.raises(ComposeRefusedError) as refused:
        run(request("factor_linear", members, space="factor"), tmp_path / "linear")
    assert [(p.code, p.path, p.observed) for p in refused.value.problems] == [("RANKS_DIFFER", ("l0",), "[2, 4]")]


def test_half_precision_inputs_are_computed_in_double_and_rounded_once(tmp_path: Path) -> None:
    a, b = (matrix([[1.0, 3.0]], torch.bfloat16), matrix([[1.0], [1.0]], torch.bfloat16))
    half = DtypeChoices(store="bfloat16")
    asked = request("cat", [member(tmp_path, "one", {"m": (a, b)}, weight=1.0 + 2**-9)], dtype=half)
    result, tensors = run(asked, tmp_path / "out")
    # 1 + 2^-9 lies between the bfloat16 numbers 1 and 1 + 2^-7; three times it between 3 and 3 + 2^-6.
    assert tensors["m.lora_A"].tolist() == [[1.0, 3.0]]
    lost = 2**-9 * sqrt(1 + 9) * sqrt(2)
    assert total(result)["rounding"] == pytest.approx(lost, rel=1e-8)


def test_members_of_different_module_sets_give_the_union(tmp_path: Path) -> None:
    pairs = {name: random_pair(2, 4, 3, seed=index) for index, name in enumerate(("a", "b", "c"))}
    one = member(tmp_path, "one", {"a": pairs["a"], "b": pairs["b"]})
    two = member(tmp_path, "two", {"b": pairs["b"], "c": pairs["c"]}, weight=2.0)
    result, tensors = run(request("cat", [one, two]), tmp_path / "out")
    assert sorted(tensors) == [f"{name}.lora_{side}" for name in "abc" for side in "AB"]
    for name, weight in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        torch.testing.assert_close(delta(tensors, name), weight * pairs[name][1] @ pairs[name][0])
    assert [record.input_ranks for record in result.modules] == [(2,), (2, 2), (2,)]


@pytest.mark.parametrize("owner_first", [True, False])
def test_a_trained_head_of_one_member_is_carried_byte_for_byte(tmp_path: Path, owner_first: bool) -> None:
    head = torch.arange(6, dtype=torch.float16).reshape(2, 3)
    owner = member(tmp_path, "owner", {"m": E1}, replacements={"classifier.weight": head})
    members = [owner, member(tmp_path, "other", {"m": E2})]
    result, tensors = run(request("cat", members if owner_first else members[::-1]), tmp_path / "out")
    assert torch.equal(tensors["classifier.weight"], head)
    assert tensors["classifier.weight"].dtype == torch.float16
    assert (result.tensors[0].module, result.tensors[0].role) == ("classifier.weight", "full")


def test_a_trained_head_of_two_members_is_refused(tmp_path: Path) -> None:
    head = {"classifier.weight": torch.ones(2, 2)}
    members = [member(tmp_path, name, {"m": E1}, replacements=head) for name in ("one", "two")]
    with pytest.raises(ComposeRefusedError) as refused:
        run(request("cat", members), tmp_path / "out")
    assert (refused.value.code, refused.value.problems[0].path) == ("REPLACEMENT_TWICE", ("classifier.weight",))


@pytest.mark.parametrize("method", ["cat", "delta_svd", "ties", "dare_ties", "magnitude_prune"])
def test_an_identical_recipe_gives_identical_bytes_at_any_worker_count(tmp_path: Path, method: Method) -> None:
    names = [f"layer.{index}" for index in range(6)]
    members = [
        member(tmp_path, who, {name: random_pair(3, 40, 30, seed=start + i) for i, name in enumerate(names)}, weight=w)
        for who, start, w in (("one", 0, 1.0), ("two", 100, -0.5))
    ]
    asked = request(
        method,
        members,
        rank=None if method == "cat" else 4,
        ties=ties_preset("peft", 0.4) if "ties" in method else None,
        dare=DareChoices(density=0.5, seed="11") if "dare" in method else None,
        prune=PruneChoices(density=0.4) if "prune" in method else None,
    )
    written = set()
    for index, workers in enumerate((1, 2, 5, 2)):
        result, _ = run(asked, tmp_path / f"{index}.out", Options(workers=workers))
        written.add(result.path.read_bytes())
    assert len(written) == 1


def test_another_seed_draws_another_dare(tmp_path: Path) -> None:
    pairs = {"m": random_pair(3, 40, 30, seed=1)}
    outputs = []
    for seed in ("1", "1", "2"):
        asked = request(
            "dare_linear", [member(tmp_path, "one", pairs)], rank=4, dare=DareChoices(density=0.5, seed=seed)
        )
        result, tensors = run(asked, tmp_path / "out")
        assert result.stochastic is not None
        assert (result.stochastic.seed, result.stochastic.density) == (seed, 0.5)
        outputs.append((delta(tensors), result.modules[0].masks))
    assert torch.equal(outputs[0][0], outputs[1][0])
    assert outputs[0][1] == outputs[1][1]
    assert not torch.equal(outputs[0][0], outputs[2][0])
    assert outputs[0][1] != outputs[2][1]


def test_a_failed_composition_leaves_nothing_and_inputs_untouched(tmp_path: Path) -> None:
    good = random_pair(2, 4, 3, seed=1)
    bad = (good[0].clone(), good[1].clone())
    bad[1][2, 1] = float("nan")
    one = member(tmp_path, "one", {"a": good, "b": bad})
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ComposeRefusedError) as refused:
        run(request("cat", [one]), tmp_path / "out")
    assert refused.value.code == "TENSOR_NOT_FINITE"
    assert refused.value.problems[0].path == ("members/0/b.lora_B", 2, 1)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    run(request("cat", [member(tmp_path, "one", {"a": good})]), tmp_path / "out")


def test_rounding_into_bfloat16_is_measured(tmp_path: Path) -> None:
    pair = random_pair(4, 64, 48, seed=2)
    asked = request("delta_svd", [member(tmp_path, "one", {"m": pair})], rank=4, dtype=DtypeChoices(store="bfloat16"))
    result, tensors = run(asked, tmp_path / "out")
    exact = pair[1] @ pair[0]
    sums = total(result)
    assert sums["error"] == pytest.approx(torch.linalg.norm(exact - delta(tensors)).item(), rel=1e-8)
    assert sums["rounding"] == pytest.approx(sums["error"], rel=1e-6)
    assert 1e-4 < sums["error"] / sums["norm"] < 1e-2


def test_another_gauge_leaves_delta_methods_alone_and_moves_factor_methods(tmp_path: Path) -> None:
    a, b = random_pair(3, 20, 16, seed=3)
    other = member(tmp_path, "other", {"m": random_pair(3, 20, 16, seed=4)})
    gauges = [member(tmp_path, "plain", {"m": (a, b)}), member(tmp_path, "scaled", {"m": (10 * a, b / 10)})]
    ties = ties_preset("paper", 0.5)
    for pair in zip(
        *(
            (
                request("cat", [one, other]),
                request("delta_svd", [one, other], rank=3),
                request("ties", [one, other], rank=3, ties=ties),
            )
            for one in gauges
        ),
        strict=True,
    ):
        first, second = (delta(run(asked, tmp_path / "out")[1]) for asked in pair)
        assert torch.linalg.norm(first - second) / torch.linalg.norm(first) < 1e-6
    results = [run(request("factor_linear", [one, other], space="factor"), tmp_path / "out") for one in gauges]
    first, second = (delta(tensors) for _, tensors in results)
    assert torch.linalg.norm(first - second) / torch.linalg.norm(first) > 2
    assert total(results[0][0])["gauge_sensitivity"] > 0.1
