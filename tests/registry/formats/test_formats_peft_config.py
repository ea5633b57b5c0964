"""adapter_config.json: every field of the installed LoraConfig is classified, and nothing unknown passes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from peft import LoraConfig

from registry.errors import RefusedError
from registry.formats.peft.config import FIELDS, read_settings
from tests.registry.formats.builders import LORA_CONFIG


def codes(**config: object) -> dict[str | int, str]:
    document: dict[str, Any] = {key: value for key, value in (LORA_CONFIG | config).items() if value is not ...}
    with pytest.raises(RefusedError) as caught:
        read_settings(document)
    return {problem.path[-1]: problem.code for problem in caught.value.problems}


def test_the_table_holds_exactly_the_fields_of_lora_config() -> None:
    assert set(FIELDS) == {field.name for field in fields(LoraConfig)}


def test_a_config_peft_wrote_is_read() -> None:
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["query"], use_rslora=True).to_dict()
    config |= {"target_modules": ["query"], "peft_type": "LORA"}
    settings = read_settings(config)
    assert (settings.rank, settings.alpha, settings.rule) == (3, 5.0, "alpha_over_sqrt_r")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alora_invocation_tokens", [1]),
        ("arrow_config", {"top_k": 3}),
        ("bias", "all"),
        ("corda_config", {"corda_method": "kpm"}),
        ("ensure_weight_tying", True),
        ("fan_in_fan_out", True),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "pissa_niter_4"),
        ("init_lora_weights", "olora"),
        ("init_lora_weights", "corda"),
        ("init_lora_weights", "loftq"),
        ("init_lora_weights", "lora_ga"),
        ("init_lora_weights", 1),
        ("kasa_config", {"beta": 1e-4}),
        ("layer_replication", [[0, 1]]),
        ("loftq_config", {"loftq_bits": 4}),
        ("lora_bias", True),
        ("lora_ga_config", {"scale": "unit"}),
        ("megatron_config", {"hidden_size": 4}),
        ("modules_to_save", ["classifier"]),
        ("monteclora_config", {"num_samples": 8}),
        ("target_parameters", ["experts.w"]),
        ("trainable_token_indices", [3]),
        ("use_bdlora", {"nblocks": 2}),
        ("use_dora", True),
        ("use_qalora", True),
        ("velora_config", {"num_groups": 2}),
    ],
)
def test_a_feature_that_changes_the_function_is_refused_by_field(key: str, value: object) -> None:
    assert codes(**{key: value}) == {key: "FEATURE_UNSUPPORTED"}


@pytest.mark.parametrize("value", [True, False, None, "gaussian", "eva", "orthogonal", "mica"])
def test_initializers_that_leave_the_base_alone_are_read(value: object) -> None:
    document: dict[str, Any] = LORA_CONFIG | {"init_lora_weights": value}
    assert read_settings(document).rank == 2


def test_an_unknown_truthy_field_is_refused_by_name_and_a_falsy_one_is_not() -> None:
    assert codes(new_scale=3, unsloth_fixed=False, other=[]) == {"new_scale": "CONFIG_FIELD_UNKNOWN"}


def test_another_method_is_refused_alone() -> None:
    assert codes(peft_type="ADALORA", init_r=8) == {"peft_type": "METHOD_UNSUPPORTED"}
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
