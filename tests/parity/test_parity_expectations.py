"""What PEFT's own tests expect of weighted adapters, asked of our engine.

From `tests/testing_common.py` (`_test_weighted_combination_of_adapters_lora`) and `tests/test_custom_models.py`
(`test_add_weighted_adapter_*`, `test_multiple_adapters_*_modules_to_save_merging_adapters*`) at commit 5d602fdbf.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from compose import ComposeRefusedError
from tests.parity.models import adapted
from tests.parity.shim import COMBINATIONS, Combination, add_weighted_adapter, heads, targets

EIGHT_EIGHT_TWENTY: Final = ({"r": 8}, {"r": 8}, {"r": 20})
FACTOR: Final = tuple(name for name in COMBINATIONS if name != "cat" and not name.endswith("svd"))
SVD: Final = tuple(name for name in COMBINATIONS if name.endswith("svd"))
WEIGHT_LISTS: Final = ((0.5, 1.5, 1.5), (-0.5, -0.8, -1.2))
HEAD: Final = {"r": 4, "target_modules": ["lin0"], "modules_to_save": ["lin1"]}
PLAIN: Final = {"r": 4, "target_modules": ["lin0"]}


def density(combination: Combination) -> float | None:
    return None if combination in ("svd", "cat", "linear") else 0.5


def ranks(model: Any, adapter: str) -> dict[str, int]:
    return {target.name: target.layer.r[adapter] for target in targets(model)}


def runs(model: Any, adapter: str) -> bool:
    model.set_adapter(adapter)
    model.eval()
    return bool(torch.isfinite(model(torch.ones(2, 24, dtype=torch.float64))).all())


@pytest.mark.parametrize("weights", WEIGHT_LISTS)
def test_a_single_adapter_gives_its_weighted_delta(tmp_path: Path, weights: Sequence[float]) -> None:
    model = adapted("linear", *EIGHT_EIGHT_TWENTY)
    add_weighted_adapter(model, ["0"], weights[:1], "single", folder=tmp_path)
    for target in targets(model):
        torch.testing.assert_close(target.delta("single"), weights[0] * target.delta("0"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weights", WEIGHT_LISTS)
@pytest.mark.parametrize(
    ("combination", "members", "rank"),
    [*((name, "12", 20) for name in SVD), ("cat", "12", 28), *((name, "01", 8) for name in FACTOR)],
)
def test_output_ranks_are_20_for_svd_28_for_cat_and_8_for_factors(
    tmp_path: Path, combination: Combination, members: str, rank: int, weights: Sequence[float]
) -> None:
    model = adapted("linear", *EIGHT_EIGHT_TWENTY)
    chosen = [weights[int(name)] for name in members]
    add_weighted_adapter(
        model, list(members), chosen, "merged", combination, density=density(combination), folder=tmp_path
    )
    assert ranks(model, "merged") == {"lin0": rank, "lin1": rank}
    assert runs(model, "merged")


@pytest.mark.parametrize("combination", FACTOR)
def test_factor_methods_refuse_unequal_ranks_and_add_nothing(tmp_path: Path, combination: Combination) -> None:
    model = adapted("linear", *EIGHT_EIGHT_TWENTY)
    with pytest.raises(ComposeRefusedError) as refused:
        add_weighted_adapter(
            model, ["1", "2"], [1.5, 1.5], "uneven", combination, density=density(combination), folder=tmp_path
        )
    assert [(problem.code, problem.path, problem.observed) for problem in refused.value.problems] == [
        ("RANKS_DIFFER", ("lin0",), "[8, 20]"),
        ("RANKS_DIFFER", ("lin1",), "[8, 20]"),
    ]
    assert "uneven" not in model.peft_config
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("weight", [0.5, -0.5])
def test_a_second_member_of_weight_zero_leaves_the_first(tmp_path: Path, weight: float) -> None:
    model = adapted("linear", {"r": 8}, {"r": 8})
    add_weighted_adapter(model, ["0", "1"], [weight, 0], "first", "linear", folder=tmp_path)
    for target in targets(model):
        torch.testing.assert_close(target.delta("first"), weight * target.delta("0"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("combination", ["linear", "svd", "cat"])
def test_a_weight_of_minus_one_negates(tmp_path: Path, combination: Combination) -> None:
    model = adapted("linear", {"r": 8})
    add_weighted_adapter(model, ["0"], [-1.0], "negative", combination, folder=tmp_path)
    for target in targets(model):
        torch.testing.assert_close(target.delta("negative"), -target.delta("0"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("combination", ["linear", "svd", "cat"])
def test_twins_with_opposite_weights_cancel(tmp_path: Path, combination: Combination) -> None:
    model = adapted("linear", {"r": 8}, {"r": 8})
    for target in targets(model):
        target.put("1", *target.pair("0"))
    add_weighted_adapter(model, ["0", "1"], [1.0, -1.0], "cancelled", combination, folder=tmp_path)
    for target in targets(model):
        assert float(target.delta("cancelled").abs().max()) < 1e-12


def test_scales_may_differ_under_a_negative_weight(tmp_path: Path) -> None:
    model = adapted("linear", {"r": 8, "lora_alpha": 16}, {"r": 8, "lora_alpha": 32})
    add_weighted_adapter(model, ["0", "1"], [0.5, -0.3], "merged", "cat", folder=tmp_path)
    for target in targets(model):
        expected = 0.5 * target.delta("0") - 0.3 * target.delta("1")
        torch.testing.assert_close(target.delta("merged"), expected, rtol=1e-12, atol=1e-12)
    assert runs(model, "merged")


def test_cat_takes_rank_patterns(tmp_path: Path) -> None:
    model = adapted("linear", {"r": 8, "rank_pattern": {"lin0": 2}}, {"r": 8, "rank_pattern": {"lin0": 16}})
    add_weighted_adapter(model, ["0", "1"], [1.0, 1.0], "merged", "cat", folder=tmp_path)
    assert ranks(model, "merged") == {"lin0": 18, "lin1": 16}


@pytest.mark.parametrize("configs", [(HEAD, PLAIN), (PLAIN, HEAD)])
def test_a_module_saved_by_one_member_goes_into_the_merge(tmp_path: Path, configs: tuple[Any, ...]) -> None:
    model = adapted("linear", *configs)
    owner = "0" if configs[0] is HEAD else "1"
    heads(model, owner)["lin1.weight"].normal_()
    add_weighted_adapter(model, ["0", "1"], [1.0, 1.0], "merged", "cat", folder=tmp_path)
    assert heads(model, "merged").keys() == {"lin1.weight"}
    assert torch.equal(heads(model, "merged")["lin1.weight"], heads(model, owner)["lin1.weight"])
    assert runs(model, "merged")


def test_a_module_saved_by_two_members_is_refused(tmp_path: Path) -> None:
    model = adapted("linear", HEAD, HEAD)
    with pytest.raises(ComposeRefusedError, match="REPLACEMENT_TWICE"):
        add_weighted_adapter(model, ["0", "1"], [1.0, 1.0], "merged", "cat", folder=tmp_path)
    assert "merged" not in model.peft_config
