"""What people ran into, cases 1 to 8, 13 and 15: the value a merge must have."""

from __future__ import annotations

import json
import re
from math import sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from registry.errors import DecisionRefusedError
from registry.service import add, decide
from registry.service.context import Context
from tests.cases.product import (
    ONE_MODULE,
    QUERY,
    ROOT,
    ask,
    close,
    codes,
    deltas,
    merge,
    pair,
    register,
    spec,
    total,
    unit,
)
from tests.compose import building
from tests.support import tiny

IDENTITIES: Final[dict[str, dict[str, Any]]] = {
    "cat": {},
    "delta_svd": {"rank": 4},
    "ties": {"rank": 4, "ties": {"density": 1.0}},
    "magnitude_prune": {"rank": 4, "prune": {"density": 1.0}},
    "dare_linear": {"rank": 4, "dare": {"density": 1.0, "seed": "1"}},
    "dare_ties": {"rank": 4, "dare": {"density": 1.0, "seed": "1"}, "ties": {"density": 1.0}},
}
"""Every method of delta space, with choices under which it claims the sum of one member."""


def test_case_01_a_scale_is_applied_once(tmp_path: Path) -> None:
    e = (building.matrix([[1, 0]]), building.matrix([[1], [0]]))
    member = building.member(tmp_path, "one", {"m": e}, weight=0.5, scale=2.0 / 1)
    for asked in (building.request("cat", [member, member]), building.request("delta_svd", [member, member], rank=1)):
        _, tensors = building.run(asked, tmp_path / "out")
        assert building.delta(tensors)[0, 0].item() == pytest.approx(2.0, abs=1e-12)


def test_case_02_a_rank_stabilised_member_alone_gives_back_its_own_delta(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    tensors = tiny.factors(1, 4)
    register(context, tiny_base, tmp_path, "one", tensors=tensors, rank=4, lora_alpha=8, use_rslora=True)
    # `merge` checks that the written directory has the scale 1 without the flag.
    found = merge(context, tmp_path / "out", {"one": 1.0})
    for module in tiny.MODULES:
        a, b = (tensors[f"{ROOT}{module}.lora_{side}.weight"].astype(np.float64) for side in "AB")
        close(found[module], 8 / sqrt(4) * (b @ a))


@pytest.mark.parametrize("rank_stabilised", [False, True])
@pytest.mark.parametrize("method", IDENTITIES)
def test_case_03_one_member_of_weight_one_is_the_identity(
    context: Context, tiny_base: Path, tmp_path: Path, method: str, rank_stabilised: bool
) -> None:
    register(context, tiny_base, tmp_path, "one", rank=4, use_rslora=rank_stabilised)
    found = merge(context, tmp_path / "out", {"one": 1.0}, method, **IDENTITIES[method])
    for module in tiny.MODULES:
        close(found[module], tiny.delta(tmp_path / "one", module))


@pytest.mark.parametrize(
    ("flag", "role", "shape", "code"),
    [
        ({"use_dora": True}, "lora_magnitude_vector", (tiny.HIDDEN,), "DORA_NOT_ADDITIVE"),
        ({"lora_bias": True}, "lora_B.bias", (tiny.HIDDEN,), "LORA_BIAS_NOT_COMPOSED"),
        ({"kasa_config": {"beta": 1e-4, "gamma": 1e-3}}, "lora_diag", (2,), "KASA_DIAGONAL"),
    ],
)
def test_case_03_what_is_no_plain_sum_is_refused_by_name(
    context: Context, tiny_base: Path, tmp_path: Path, flag: dict[str, Any], role: str, shape: Any, code: str
) -> None:
    extras = {f"{ROOT}{module}.{role}": np.ones(shape, np.float32) for module in tiny.MODULES}
    register(context, tiny_base, tmp_path, "one", tensors=tiny.factors(1) | extras, **flag)
    assert code in codes(ask(context, spec({"one": 1.0})))


def test_case_04_cross_terms_are_measured(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    for name, index in (("one", 0), ("two", 1)):
        register(context, tiny_base, tmp_path, name, tensors=unit(index), rank=1, lora_alpha=1, **ONE_MODULE)
    both = {"one": 1.0, "two": 1.0}
    exact = merge(context, tmp_path / "exact", both)[QUERY][:2, :2]
    assert exact.tolist() == [[1, 0], [0, 1]]
    answer = ask(context, spec(both, "factor_linear", "factor"))
    assert total(answer)["cross_term_norm"] == pytest.approx(sqrt(2), rel=1e-8)
    assert "FACTOR_METHOD_GAUGE" in {finding.code for finding in answer.decision.findings}
    mixed = merge(context, tmp_path / "mixed", both, "factor_linear", "factor")[QUERY]
    assert mixed[:2, :2].tolist() == [[1, 1], [1, 1]]
    assert np.count_nonzero(mixed) == 4


def test_case_05_a_weight_of_minus_one_gives_minus_the_delta(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path, "one")
    for method, choices in IDENTITIES.items():
        found = merge(context, tmp_path / method, {"one": -1.0}, method, **choices)
        for module in tiny.MODULES:
            close(found[module], -tiny.delta(tmp_path / "one", module))
    found = merge(context, tmp_path / "factor", {"one": -1.0}, "factor_linear", "factor")
    close(found[QUERY], -tiny.delta(tmp_path / "one", QUERY))


def test_case_05_twins_of_opposite_weights_cancel(tmp_path: Path) -> None:
    factors = {"m": building.random_pair(2, 4, 3, seed=4)}
    twins = [building.member(tmp_path, "x", factors, weight=weight) for weight in (1.0, -1.0)]
    for asked in (building.request("cat", twins), building.request("delta_svd", twins, rank=2)):
        _, tensors = building.run(asked, tmp_path / "out")
        assert building.delta(tensors).norm().item() < 1e-14 * (factors["m"][1] @ factors["m"][0]).norm().item()


@pytest.mark.parametrize("method", ["cat", "delta_svd", "magnitude_prune", "dare_linear"])
def test_case_05_members_of_weight_zero_leave_the_first(
    context: Context, tiny_base: Path, tmp_path: Path, method: str
) -> None:
    for seed, name in enumerate(("one", "two", "three"), start=1):
        register(context, tiny_base, tmp_path, name, seed)
    found = merge(context, tmp_path / "out", {"one": 1.0, "two": 0.0, "three": 0.0}, method, **IDENTITIES[method])
    for module in tiny.MODULES:
        close(found[module], tiny.delta(tmp_path / "one", module))


def ranks(context: Context, base: Path, folder: Path, name: str, seed: int, first: int) -> None:
    """An adapter of rank 8, and of another rank on the first module."""
    tensors = tiny.factors(seed, 8) | tiny.factors(seed, first, tiny.MODULES[:1])
    pattern = {tiny.MODULES[0]: first}
    register(context, base, folder, name, rank=8, lora_alpha=16, rank_pattern=pattern, tensors=tensors)


@pytest.mark.parametrize(("method", "choices", "rank"), [("cat", {}, 16), ("delta_svd", {"rank": 8}, 8)])
def test_case_06_ranks_by_module_are_summed_and_reload(
    context: Context, tiny_base: Path, tmp_path: Path, method: str, choices: dict[str, Any], rank: int
) -> None:
    ranks(context, tiny_base, tmp_path, "one", 1, 2)
    ranks(context, tiny_base, tmp_path, "two", 2, 4)
    answer = ask(context, spec({"one": 1.0, "two": 1.0}, method, **choices))
    found = merge(context, tmp_path / "out", {"one": 1.0, "two": 1.0}, method, **choices)
    for module in tiny.MODULES:
        close(found[module], tiny.delta(tmp_path / "one", module) + tiny.delta(tmp_path / "two", module))
    written = {name: np.linalg.matrix_rank(found[name], tol=1e-3) for name in tiny.MODULES}
    assert written == dict.fromkeys(tiny.MODULES, 8) | {tiny.MODULES[0]: 6}
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text(encoding="utf-8"))
    # The first module has no more directions than 2 + 4, whatever is asked.
    assert (config["r"], list(config["rank_pattern"].values())) == (rank, [6])
    again = add.add_adapter(context, tmp_path / "out", "tiny", "again")
    assert (again.digest, again.created) == (answer.output, False)


def test_case_06_factor_methods_refuse_unequal_ranks_by_module(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    ranks(context, tiny_base, tmp_path, "one", 1, 2)
    ranks(context, tiny_base, tmp_path, "two", 2, 4)
    answer = ask(context, spec({"one": 1.0, "two": 1.0}, "factor_linear", "factor"))
    assert codes(answer) == {"RANKS_UNEQUAL"}
    with pytest.raises(DecisionRefusedError) as refused:
        decide.require_proceeding(answer)
    (problem,) = refused.value.problems
    assert tiny.MODULES[0] in (*problem.path, problem.observed)
    assert {int(number) for number in re.findall(r"\b[0-9]+\b", problem.observed)} == {2, 4}


def test_case_07_half_precision_is_computed_in_double_and_rounded_once(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    a, b = np.zeros((1, tiny.HIDDEN), np.float16), np.zeros((tiny.HIDDEN, 1), np.float16)
    a[0, :2], b[:2, 0] = (1, 3), 1
    halves = pair(QUERY, a, b)
    register(context, tiny_base, tmp_path, "one", tensors=halves, rank=1, lora_alpha=1, **ONE_MODULE)
    weight = 1 + 2**-12
    # Between the neighbours 1 and 1 + 2^-10 of half precision, and exact in single precision.
    exact = ask(context, spec({"one": weight}))
    assert total(exact)["rounding"] == 0.0
    found = merge(context, tmp_path / "out", {"one": weight})[QUERY]
    assert found[0, :2].tolist() == [weight, 3 * weight]
    rounded = merge(context, tmp_path / "half", {"one": weight}, dtype={"store": "float16"})[QUERY]
    assert rounded[0, :2].tolist() == [1.0, 3.0]
    answer = ask(context, spec({"one": weight}, dtype={"store": "float16"}))
    assert total(answer)["rounding"] == pytest.approx(2**-12 * sqrt(1 + 9) * sqrt(2), rel=1e-8)


@pytest.mark.parametrize("first", ["one", "two"])
def test_case_08_members_of_different_modules_give_the_union(
    context: Context, tiny_base: Path, tmp_path: Path, first: str
) -> None:
    sets: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
        "one": (tiny.MODULES[:2], {"layers_to_transform": [0]}),
        "two": (tiny.MODULES[1:], {"exclude_modules": [tiny.MODULES[0]]}),
    }
    for seed, (name, (modules, config)) in enumerate(sets.items(), start=1):
        register(context, tiny_base, tmp_path, name, tensors=tiny.factors(seed, 2, modules), **config)
    weights = {name: {"one": 2.0, "two": -1.0}[name] for name in sorted(sets, key=lambda name: name != first)}
    found = merge(context, tmp_path / "out", weights)
    assert found.keys() == set(tiny.MODULES)
    for module in tiny.MODULES:
        held = [name for name, (modules, _) in sets.items() if module in modules]
        expected = [weights[name] * tiny.delta(tmp_path / name, module) for name in held]
        close(found[module], np.sum(expected, axis=0))


def test_case_13_rounding_into_bfloat16_is_a_number(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path, "one", tensors=unit(0), rank=1, lora_alpha=1, **ONE_MODULE)
    # 1 + 2^-9 lies between the neighbours 1 and 1 + 2^-7 of bfloat16.
    answer = ask(context, spec({"one": 1 + 2**-9}, dtype={"store": "bfloat16"}))
    assert total(answer)["rounding"] == pytest.approx(2**-9, rel=1e-8)


def test_case_13_a_dense_sum_is_no_adapter(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path, "one")
    assert "METHOD_ONLY_DENSE_RELEASE" in codes(ask(context, spec({"one": 1.0}, "dense_sum")))


def test_case_15_another_gauge_moves_factor_methods_alone(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    plain = tiny.factors(1)
    scaled = {key: array * (10 if "lora_A" in key else np.float32(0.1)) for key, array in plain.items()}
    register(context, tiny_base, tmp_path, "plain", tensors=plain)
    register(context, tiny_base, tmp_path, "scaled", tensors=scaled)
    register(context, tiny_base, tmp_path, "other", 2)
    asked: dict[str, dict[str, Any]] = {
        "cat": {}, "delta_svd": {"rank": 3}, "ties": {"rank": 3, "ties": {"density": 0.5}},
    }  # fmt: skip
    for method, choices in asked.items():
        one, two = (
            merge(context, tmp_path / f"{method}-{name}", {name: 1.0, "other": 1.0}, method, **choices)
            for name in ("plain", "scaled")
        )
        for module in tiny.MODULES:
            close(one[module], two[module])
    answer = ask(context, spec({"plain": 1.0, "other": 1.0}, "factor_linear", "factor"))
    sensitivity = total(answer)["gauge_sensitivity"]
    assert isinstance(sensitivity, float)
    assert sensitivity > 0.1
    one, two = (
        merge(context, tmp_path / f"linear-{name}", {name: 1.0, "other": 1.0}, "factor_linear", "factor")
        for name in ("plain", "scaled")
    )
    for module in tiny.MODULES:
        assert np.linalg.norm(one[module] - two[module]) > 2 * np.linalg.norm(one[module])
    assert deltas(tmp_path / "linear-plain").keys() == set(tiny.MODULES)
