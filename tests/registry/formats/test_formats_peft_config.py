"""adapter_config.json: every field of the installed LoraConfig is classified, and nothing unknown passes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from peft import AdaLoraConfig, LoraConfig, PeftType

from registry.errors import RefusedError
from registry.formats.peft.config import read_settings
from registry.formats.peft.fields import FIELDS, METHODS
from tests.registry.formats.builders import LORA_CONFIG


def codes(**config: object) -> dict[str | int, str]:
    document: dict[str, Any] = {key: value for key, value in (LORA_CONFIG | config).items() if value is not ...}
    with pytest.raises(RefusedError) as caught:
        read_settings(document)
    return {problem.path[-1]: problem.code for problem in caught.value.problems}


def test_the_table_holds_exactly_the_fields_of_pefts_configs_and_of_older_ones() -> None:
    older = {"enable_lora", "merge_weights"}
    known = {field.name for config in (LoraConfig, AdaLoraConfig) for field in fields(config)}
    assert set(FIELDS) == known | older


def test_every_other_method_of_peft_is_refused_by_its_name() -> None:
    others = {method.value for method in PeftType} - {"LORA", "ADALORA"}
    assert set(METHODS) == {method.lower() for method in others}
    for method in others:
        assert codes(peft_type=method) == {"peft_type": "METHOD_UNSUPPORTED"}


def test_a_config_peft_wrote_is_read() -> None:
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["query"], use_rslora=True).to_dict()
    config |= {"target_modules": ["query"], "peft_type": "LORA"}
    settings = read_settings(config)
    assert (settings.rank, settings.alpha, settings.rule) == (3, 5.0, "alpha_over_sqrt_r")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("arrow_config", {"top_k": 3}),
        ("enable_lora", [True, False, True]),
        ("init_lora_weights", 1),
        ("init_lora_weights", "mystery"),
        ("layer_replication", [[0, 1]]),
        ("megatron_config", {"hidden_size": 4}),
        ("monteclora_config", {"num_samples": 8}),
        ("use_bdlora", {"nblocks": 2}),
    ],
)
def test_a_feature_that_changes_the_function_is_refused_by_field(key: str, value: object) -> None:
    assert codes(**{key: value}) == {key: "FEATURE_UNSUPPORTED"}


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("pissa", "pissa"),
        ("pissa_niter_4", "pissa"),
        ("olora", "olora_init"),
        ("corda", "corda"),
        ("loftq", "loftq"),
        ("lora_ga", "lora_ga"),
    ],
)
def test_initializers_that_change_the_base_make_native_factors(value: str, key: str) -> None:
    document: dict[str, Any] = LORA_CONFIG | {"init_lora_weights": value}
    initializer = read_settings(document).initializer
    assert (initializer.key, initializer.payload) == (key, "native")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alora_invocation_tokens", ["a"]),
        ("modules_to_save", "classifier"),
        ("target_parameters", [1]),
        ("trainable_token_indices", {"wte": 3}),
        ("use_dora", 1),
        ("lora_bias", "yes"),
        ("kasa_config", True),
    ],
)
def test_a_field_of_the_wrong_type_is_refused(key: str, value: object) -> None:
    assert codes(**{key: value}) == {key: "CONFIG_FIELD_TYPE"}


@pytest.mark.parametrize("value", [True, False, None, "gaussian", "eva", "orthogonal", "mica"])
def test_initializers_that_leave_the_base_alone_are_read(value: object) -> None:
    document: dict[str, Any] = LORA_CONFIG | {"init_lora_weights": value}
    assert read_settings(document).rank == 2


def test_an_unknown_truthy_field_is_refused_by_name_and_a_falsy_one_is_not() -> None:
    assert codes(new_scale=3, unsloth_fixed=False, other=[]) == {"new_scale": "CONFIG_FIELD_UNKNOWN"}


def test_another_method_is_refused_alone() -> None:
    assert codes(peft_type="LOHA", use_dora=True) == {"peft_type": "METHOD_UNSUPPORTED"}
    assert codes(peft_type=...) == {"peft_type": "CONFIG_FIELD_MISSING"}


def test_wrong_and_missing_fields_are_refused_together() -> None:
    found = codes(r="8", lora_alpha=..., use_rslora="yes", target_modules=..., layers_to_transform=["1"])
    assert found == {
        "r": "CONFIG_FIELD_TYPE",
        "lora_alpha": "CONFIG_FIELD_MISSING",
        "use_rslora": "CONFIG_FIELD_TYPE",
        "target_modules": "CONFIG_FIELD_MISSING",
        "layers_to_transform": "CONFIG_FIELD_TYPE",
    }


@pytest.mark.parametrize("rank", [0, -1, 2**40])
def test_a_rank_outside_its_range_is_refused(rank: int) -> None:
    assert codes(r=rank) == {"r": "CONFIG_FIELD_VALUE"}
    assert codes(rank_pattern={"query": rank}) == {"query": "CONFIG_FIELD_VALUE"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target_modules", "("),
        ("target_modules", r"(a+)+b"),
        ("exclude_modules", r"(.*\.query|(x*)*)"),
        ("target_modules", r".*a.*b.*c.*d.*e.*f.*g"),
        ("target_modules", r"(.)\1+"),
        ("target_modules", r"(a?){20}"),
        ("target_modules", r"(?:a|aa){2,40}x"),
        ("target_modules", "a?" * 30),
        ("target_modules", "a{99999999999}"),
        ("target_modules", "a" * 5000),
        ("rank_pattern", {"[": 4}),
        ("rank_pattern", {"(?i)query": 4}),
        ("alpha_pattern", {"(x{2,}){3,}": 4}),
    ],
)
def test_an_expression_that_is_none_or_could_run_away_is_refused(key: str, value: object) -> None:
    assert codes(**{key: value}) == {key: "PATTERN_INVALID"}


def test_layer_fields_that_peft_itself_refuses_are_refused() -> None:
    assert codes(target_modules="all-linear", layers_to_transform=[1]) == {
        "layers_to_transform": "CONFIG_FIELD_CONFLICT"
    }
    assert codes(layers_pattern="layer") == {"layers_pattern": "CONFIG_FIELD_CONFLICT"}
    assert codes(layers_to_transform=[1], layers_pattern=["(?P<idx>x)"]) == {"layers_pattern": "PATTERN_INVALID"}
