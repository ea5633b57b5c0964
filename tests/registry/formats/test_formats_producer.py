"""What transformers and PEFT save, read back: modules, ranks and scales are those of the living model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from registry.formats import AdapterReading, BaseReading, read_adapter, read_base

pytestmark = pytest.mark.filterwarnings(
    # PEFT 0.21 asks transformers 5.24 under the older name.
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
BERT = BertConfig(
    vocab_size=11, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=6,
)  # fmt: skip
LLAMA: dict[str, Any] = {
    "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 12,
}  # fmt: skip


def saved(
    folder: Path, base: PreTrainedModel, wrapped: PreTrainedModel, config: dict[str, Any]
) -> tuple[BaseReading, AdapterReading, dict[str, float]]:
    """Save the base, adapt `wrapped`, save the adapter; with PEFT's own scale per module."""
    base.save_pretrained(folder / "base")
    model = get_peft_model(wrapped, LoraConfig(init_lora_weights=False, **config))
    model.save_pretrained(str(folder / "adapter"))
    scales = {
        name.removeprefix("base_model.model."): float(module.scaling["default"])
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    reading = read_base(folder / "base")
    return reading, read_adapter(folder / "adapter", reading.manifest), scales


CONFIGS: list[dict[str, Any]] = [
    {"target_modules": "all-linear", "r": 2, "lora_alpha": 3},
    {"target_modules": "all-linear", "exclude_modules": r".*\.1\..*", "r": 2, "lora_alpha": 3},
    {"target_modules": r".*(query|q_proj|dense|down_proj)", "r": 3, "lora_alpha": 5, "use_rslora": True},
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_llama_adapter_has_the_modules_and_scales_of_the_living_model(
    tmp_path: Path, config: dict[str, Any], tied: bool
) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=tied, **LLAMA))
    _, adapter, scales = saved(tmp_path, model, model, config)
    assert {factor.module: factor.scale.value for factor in adapter.manifest.factors} == scales


@pytest.mark.parametrize(
    "config",
    [
        *CONFIGS,
        {"target_modules": ["dense", "query"], "exclude_modules": ["pooler.dense"], "r": 2, "lora_alpha": 8},
        {"target_modules": ["query", "value"], "layers_to_transform": [0, 2], "r": 2, "lora_alpha": 8},
        {"target_modules": ["query"], "layers_to_transform": 1, "layers_pattern": "layer", "r": 2, "lora_alpha": 8},
        {
            "target_modules": ["query", "value", "dense"],
            "r": 2,
            "lora_alpha": 8,
            "rank_pattern": {"query": 4, r"layer\.1\..*\.value": 3, "pooler.dense": 1},
            "alpha_pattern": {r"layer\.[02]\..*query": 5, "intermediate.dense": 7},
            "use_rslora": True,
        },
    ],
)
def test_a_bert_adapter_has_the_modules_and_scales_of_the_living_model(tmp_path: Path, config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = BertModel(BERT)
    _, adapter, scales = saved(tmp_path, model, model, config)
    assert {factor.module: factor.scale.value for factor in adapter.manifest.factors} == scales


def test_an_adapter_of_a_head_model_is_one_of_the_bare_base(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = {"target_modules": ["query", "value"], "r": 2, "lora_alpha": 8, "rank_pattern": {r"bert\..*query": 3}}
    _, adapter, scales = saved(tmp_path, BertModel(BERT), BertForSequenceClassification(BERT), config)
    assert {f"bert.{factor.module}": factor.scale.value for factor in adapter.manifest.factors} == scales
    assert adapter.notes["wrapper_rule"] == "remove_bert_prefix"


def test_a_base_saved_in_shards_is_the_same_base(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **LLAMA))
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="2KB")
    one, many = read_base(tmp_path / "one"), read_base(tmp_path / "many", jobs=3)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    assert many.manifest == one.manifest
