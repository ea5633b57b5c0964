"""config.json: transformers' own defaults, and a refusal for every key that is not understood."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import BertConfig, LlamaConfig

from registry.errors import RefusedError
from registry.formats.base.config import read_architecture
from registry.formats.base.rules import nearest_float32
from schemas.architectures import BertArchitecture, LlamaArchitecture


def codes(document: dict[str, Any]) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(RefusedError) as caught:
        read_architecture(document)
    return {problem.path: problem.code for problem in caught.value.problems}


def test_bert_defaults_are_those_of_transformers() -> None:
    found = read_architecture({"model_type": "bert"})
    assert isinstance(found, BertArchitecture)
    theirs = BertConfig()
    for field in set(BertArchitecture.model_fields) - {"position_embedding_type"}:
        assert getattr(found, field) == getattr(theirs, field), field
    assert found.position_embedding_type == "absolute"


def test_llama_defaults_are_those_of_transformers() -> None:
    found = read_architecture({"model_type": "llama"})
    assert isinstance(found, LlamaArchitecture)
    theirs = LlamaConfig()
    for field in set(LlamaArchitecture.model_fields) - {"rope"}:
        assert getattr(found, field) == getattr(theirs, field), field
    assert theirs.rope_parameters == {"rope_theta": found.rope.rope_theta, "rope_type": found.rope.rope_type}


def test_a_config_transformers_wrote_is_read_with_nothing_unknown() -> None:
    bert = BertConfig(hidden_size=24, num_attention_heads=4, layer_norm_eps=1e-5)
    llama = LlamaConfig(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
    found = read_architecture(bert.to_dict())
    assert isinstance(found, BertArchitecture)
    assert (found.hidden_size, found.num_attention_heads) == (24, 4)
    second = read_architecture(llama.to_dict())
    assert isinstance(second, LlamaArchitecture)
    assert (second.head_dim, second.num_key_value_heads, second.tie_word_embeddings) == (6, 2, True)


def test_defaults_written_out_or_left_out_are_one_architecture() -> None:
    short: dict[str, Any] = {"model_type": "bert", "hidden_size": 24}
    assert read_architecture(BertConfig(hidden_size=24).to_dict()) == read_architecture(short)


def test_both_spellings_of_rope_are_one() -> None:
    old: dict[str, Any] = {
        "model_type": "llama",
        "rope_theta": 500000,
        "rope_scaling": {"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8192},
    }
    new: dict[str, Any] = {
        "model_type": "llama",
        "rope_parameters": {
            "rope_theta": 500000.0,
            "rope_type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 8192.0,
        },
    }
    found = read_architecture(old)
    assert found == read_architecture(new)
    assert isinstance(found, LlamaArchitecture)
    assert found.rope.parameters == {"factor": 8.0, "original_max_position_embeddings": 8192.0}
    legacy: dict[str, Any] = {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert read_architecture(legacy) != read_architecture({"model_type": "llama"})


def test_rope_parameters_may_be_lists_of_numbers_only() -> None:
    rope: dict[str, Any] = {"rope_type": "longrope", "short_factor": [1, 2.5], "long_factor": [1.0, "x"]}
    document: dict[str, Any] = {"model_type": "llama", "rope_parameters": rope}
    assert codes(document) == {("config.json", "long_factor"): "CONFIG_FIELD_TYPE"}
    rope["long_factor"] = None
    found = read_architecture(document)
    assert isinstance(found, LlamaArchitecture)
    assert found.rope.parameters == {"short_factor": (1.0, 2.5), "original_max_position_embeddings": 2048.0}


def test_rms_norm_eps_is_the_nearest_single_precision_decimal() -> None:
    assert nearest_float32(9.999999747378752e-06) == 1e-5
    single: dict[str, Any] = {"model_type": "llama", "rms_norm_eps": 9.999999747378752e-06}
    assert read_architecture(single) == read_architecture({"model_type": "llama", "rms_norm_eps": 1e-5})


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "layer_norm_eps", "hidden_act", "vocab_size"])
def test_a_semantic_key_changes_the_architecture(key: str) -> None:
    plain = read_architecture({"model_type": "bert"})
    other: Any = "relu" if key == "hidden_act" else 1
    assert read_architecture({"model_type": "bert", key: other}) != plain


def test_ignorable_keys_do_not_change_the_architecture() -> None:
    noise: dict[str, Any] = {
        "transformers_version": "9",
        "torch_dtype": "float16",
        "use_cache": True,
        "hidden_dropout_prob": 0.5,
    }
    assert read_architecture({"model_type": "bert"} | noise) == read_architecture({"model_type": "bert"})


def test_an_unlisted_model_type_is_refused_with_the_listed_ones() -> None:
    with pytest.raises(RefusedError) as caught:
        read_architecture({"model_type": "mamba"})
    assert caught.value.code == "MODEL_TYPE_UNLISTED"
    assert caught.value.problems[0].expected == (
        "one of bert, distilbert, gemma, gemma2, gemma3_text, gpt2, llama, mistral, mixtral, phi, phi3, qwen2, "
        "qwen2_moe, qwen3, qwen3_moe, roberta, vit"
    )


def test_unknown_truthy_keys_are_refused_together_and_falsy_ones_are_not() -> None:
    assert read_architecture({"model_type": "llama", "pretraining_tp": 1})
    document = {"model_type": "bert", "is_decoder": True, "new_gate": 0.5, "pruned_heads": {}, "other": None}
    assert codes(document) == {
        ("config.json", "is_decoder"): "CONFIG_KEY_UNKNOWN",
        ("config.json", "new_gate"): "CONFIG_KEY_UNKNOWN",
    }


def test_wrong_types_and_values_are_refused_together() -> None:
    document = {
        "model_type": "llama",
        "hidden_size": "64",
        "num_attention_heads": True,
        "rope_scaling": {"rope_type": "spiral", "factor": "two"},
        "rope_interleaved": True,
        "pretraining_tp": 2,
    }
    assert codes(document) == {
        ("config.json", "hidden_size"): "CONFIG_FIELD_TYPE",
        ("config.json", "num_attention_heads"): "CONFIG_FIELD_TYPE",
        ("config.json", "rope_type"): "CONFIG_FIELD_VALUE",
        ("config.json", "rope_interleaved"): "CONFIG_FIELD_VALUE",
        ("config.json", "pretraining_tp"): "CONFIG_KEY_UNKNOWN",
    }


def test_an_unknown_kind_of_positions_is_refused() -> None:
    found = codes({"model_type": "bert", "position_embedding_type": "spiral"})
    assert found == {("config.json", "position_embedding_type"): "CONFIG_FIELD_VALUE"}


def test_a_negative_size_is_refused_by_the_manifest() -> None:
    found = codes({"model_type": "bert", "hidden_size": -3})
    assert found == {("config.json", "hidden_size"): "MANIFEST_INVALID"}
