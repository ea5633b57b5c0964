"""Lifecycle traps: every tensor loads, and the transaction is another one (V 0x0AK)."""

import json
from typing import Any

import pytest

from oracles.mutation import rejection
from oracles.registry import load
from oracles.variants.adamw import State
from oracles.variants.variant_lifecycle import stop
from oracles.variants.variant_lifecycle_state import (
    LifecycleFixture,
    Portable,
    Run,
    export,
    local,
    reload,
    state_hash,
    train,
)
from oracles.variants.variant_stacks_rules import Axes


def document() -> Any:
    return json.loads(load("variant_lifecycle").fixture_bytes())


def fixture() -> LifecycleFixture:
    return LifecycleFixture.model_validate_json(json.dumps(document()))


def runs() -> dict[str, Run]:
    return {stack.name: train(fixture(), stack.axes) for stack in fixture().stacks}


@pytest.mark.parametrize(
    ("field", "value", "check"),
    [
        ("norm_backward", "full", "detached m_B of QDoRA"),
        ("frozen_factor_gradient", "raw", "dense update of LoRA-FA"),
        ("resume", "parameters_only", "direct and resumed hashes of QLoRA+rsLoRA agree"),
        ("portable_scale", "kept_alpha", "portable alphas"),
        ("release_from", "first_update", "dense release error of QLoRA+rsLoRA"),
        ("rollback", "arithmetic_unmerge", "rollback errors"),
    ],
)
def test_a_shortcut_through_the_lifecycle_fails_its_check(field: str, value: str, check: str) -> None:
    assert rejection(load("variant_lifecycle"), {**document(), field: value}) == check


def test_an_identity_of_another_quantizer_is_another_artifact() -> None:
    changed = document()
    changed["names"]["quantizer"] = "nf4_block128_v1"
    assert rejection(load("variant_lifecycle"), changed) == "bases and quantizers"


def test_a_slot_inside_portable_keys_is_caught() -> None:
    changed = document()
    changed["names"]["module"] = "default"
    assert rejection(load("variant_lifecycle"), changed) == "portable keys of QLoRA+rsLoRA"


def test_the_resume_hash_covers_base_parameters_moments_and_step() -> None:
    run = runs()["QDoRA"]
    state = run.first
    moments = {**state.v, "magnitude": ((0.0, 0.0, 0.0),)}
    changed: list[State] = [
        state._replace(step=2),
        state._replace(v=moments),
        state._replace(parameters={**state.parameters, "B": run.begun.parameters["B"]}),
    ]
    hashes = {state_hash(run.base, one) for one in (state, *changed)} | {state_hash(run.weight(state), state)}
    assert len(hashes) == 5


def test_a_portable_adapter_rebuilds_its_weight_under_any_slot() -> None:
    run = runs()["PiSSA+rsLoRA"]
    portable: Portable = export(fixture(), run)
    for slot in ("default", "task_blue"):
        names = fixture().names.model_copy(update={"reload_slot": slot})
        assert all(f".{slot}." in key for key in local(portable, names, slot))
        found, expected = reload(portable, names, run.axes, run.runtime_base), run.weight(run.second)
        assert max(abs(x - y) for a, b in zip(found, expected, strict=True) for x, y in zip(a, b, strict=True)) < 1e-14


def test_a_native_pissa_pair_on_the_original_base_counts_the_principal_part_twice() -> None:
    run = runs()["PiSSA+rsLoRA"]
    native = export(fixture(), run._replace(axes=run.axes.model_copy(update={"artifact": "native"})))
    found = reload(native, fixture().names, run.axes, run.runtime_base)
    expected = run.weight(run.second)
    assert max(abs(x - y) for a, b in zip(found, expected, strict=True) for x, y in zip(a, b, strict=True)) > 1.0


def test_a_stack_without_a_refusal_stops_at_its_first_open_coordinate() -> None:
    adalora = document()["bounded"][-1]["axes"]
    assert stop(Axes.model_validate_json(json.dumps(adalora))) == "merge"
    assert stop(Axes.model_validate_json(json.dumps({**adalora, "base": "dense"}))) == "none"
