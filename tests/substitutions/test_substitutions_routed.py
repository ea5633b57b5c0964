"""Substitutions of the routed family that need no router: every shape fits, and what is meant does not (R 0x09H)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from registry.errors import UsageProblemError
from registry.service import add, verify
from registry.service.composer import Composed, ComposeOrder, Progress
from registry.service.context import Context
from registry.wiring import LazyComposer
from schemas.adapter import AdapterManifest, make_scale
from tests.substitutions.conftest import QUERY, alone, ask, put, refusals
from tests.support import stored, tiny
from tests.support.stored import Factor, random_factor

SCALE = make_scale(4.0, "alpha_over_r", 2)
EXPERTS = 3


def hydra(folder: Path) -> Path:
    """A directory of HydraLoRA: one A, three B and a router on one module."""
    draw = np.random.default_rng(5)
    key = f"base_model.model.{QUERY}"
    tensors = {f"{key}.lora_A.weight": draw.normal(size=(2, tiny.HIDDEN)).astype(np.float32)}
    for expert in range(EXPERTS):
        tensors[f"{key}.lora_B{expert}.weight"] = draw.normal(size=(tiny.HIDDEN, 2)).astype(np.float32)
    tensors[f"{key}.lora_route.weight"] = draw.normal(size=(EXPERTS, tiny.HIDDEN)).astype(np.float32)
    return tiny.write_adapter(folder, tensors=tensors, target_modules=[QUERY], lora_nums=EXPERTS)


def pool(context: Context, name: str, *, equal: bool) -> AdapterManifest:
    """Two experts on one module, over one a or over two of its shape."""
    first, second = random_factor(1, 2, SCALE), random_factor(2, 2, SCALE)
    other = Factor(first.a if equal else second.a, second.b, SCALE)
    parts = {
        str(expert): Factor(factor.a, factor.b, SCALE, {}, {"module": QUERY, "expert": expert, "source": "hydralora"})
        for expert, factor in enumerate((first, other))
    }
    return stored.put(context, "tiny", name, parts, family="hydralora")


def test_a_dynamic_route_packaged_as_one_static_delta(context: Context, tmp_path: Path) -> None:
    add.add_adapter(context, hydra(tmp_path / "hydra"), "tiny", "hydra")
    assert refusals(alone(context, "hydra")) == {"EXPERT_POOL_FUSED"}
    routed = refusals(alone(context, "hydra", lane="shared_a_dense"))
    assert {"DYNAMIC_PACKAGED_STATIC", "ROUTER_MISSING"} <= routed


def test_a_factor_linear_average_called_a_sum_of_deltas(context: Context) -> None:
    members = {name: random_factor(seed, 2, SCALE) for seed, name in enumerate(("one", "two"))}
    for name, factor in members.items():
        put(context, name, factor)
    both = dict.fromkeys(members, 1.0)
    assert refusals(ask(context, both, method="factor_linear")) == {"SPACE_NOT_OFFERED"}
    with pytest.raises(UsageProblemError, match="SPACE_CONTRADICTS_ALIAS"):
        ask(context, both, method="linear")
    summed, expected = _delta(context, both), members["one"].delta + members["two"].delta
    assert np.linalg.norm(summed - expected) <= 1e-6 * np.linalg.norm(expected)
    crossed = _delta(context, both, method="factor_linear", space="factor")
    assert np.linalg.norm(crossed - expected) > 0.5 * np.linalg.norm(expected)


def _delta(context: Context, members: Mapping[str, float], **fields: Any) -> NDArray[np.float64]:
    answer = ask(context, members, **fields)
    assert answer.output is not None
    return stored.arrays_of(context, stored.load(context, answer.output))[QUERY].delta


def test_a_shared_schedule_over_unequal_a(context: Context) -> None:
    shared, unequal = pool(context, "shared", equal=True), pool(context, "unequal", equal=False)
    sides = [[(factor.a.shape, factor.b.shape) for factor in found.factors] for found in (shared, unequal)]
    assert sides[0] == sides[1]
    assert refusals(alone(context, "shared")) == {"EXPERT_POOL_FUSED"}
    assert refusals(alone(context, "unequal")) == {"EXPERT_POOL_FUSED", "SHARED_A_UNEQUAL"}


class Naive(LazyComposer):
    """A composer that concatenates under the first member's scale, as if all scales were one."""

    def compose(self, order: ComposeOrder, folder: Path, progress: Progress | None = None) -> Composed:
        first = order.members[order.spec.members[0].adapter].adapter.factors[0].scale
        flat = {
            digest: replace(member, adapter=_rescaled(member.adapter, first.alpha))
            for digest, member in order.members.items()
        }
        return super().compose(replace(order, members=flat), folder, progress)


def _rescaled(adapter: AdapterManifest, alpha: float) -> AdapterManifest:
    factors = tuple(
        factor.model_copy(update={"scale": make_scale(alpha, "alpha_over_r", factor.rank)})
        for factor in adapter.factors
    )
    return adapter.model_copy(update={"factors": factors})


@pytest.mark.parametrize(("alphas", "wrong"), [((4.0, 4.0), False), ((4.0, 1.0), True)])
def test_a_naive_concatenation_is_another_result_exactly_where_scales_differ(
    context: Context, alphas: tuple[float, float], wrong: bool
) -> None:
    for seed, (name, alpha) in enumerate(zip(("one", "two"), alphas, strict=True)):
        put(context, name, random_factor(seed, 2, make_scale(alpha, "alpha_over_r", 2)))
    naive = replace(context, composer=Naive(1, 2**30))
    answer = ask(naive, {"one": 1.0, "two": 1.0})
    assert answer.composition is not None
    assert ("SCALES_DIFFER" in {finding.code for finding in answer.decision.findings}) is wrong
    faults = {fault.code for fault in verify.verify(context, recompute=True).faults}
    assert faults == ({"RECOMPUTE_DIFFERS"} if wrong else set())
