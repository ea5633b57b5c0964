"""What PEFT 0.21 saves and is no pair of factors a module is refused by the name of the method or feature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.config import BdLoraConfig, MontecloraConfig
from transformers import BertModel

from registry.errors import RefusedError
from registry.formats import read_adapter, read_base
from schemas.errors import Problem
from tests.registry.formats.models import model, saved

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    # PEFT 0.21 asks transformers 5.24 under the older name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
MODULES: dict[str, Any] = {"target_modules": ["query", "value"]}
OTHERS: dict[str, Any] = {
    "LoHa": peft.LoHaConfig(r=2, **MODULES),
    "LoKr": peft.LoKrConfig(r=2, **MODULES),
    "OFT": peft.OFTConfig(r=2, oft_block_size=0, **MODULES),
    "IA3": peft.IA3Config(feedforward_modules=[], **MODULES),
    "VeRA": peft.VeraConfig(r=2, **MODULES),
    "HRA": peft.HRAConfig(r=2, **MODULES),
    "VB-LoRA": peft.VBLoRAConfig(r=2, num_vectors=4, vector_length=2, topk=2, **MODULES),
    "FourierFT": peft.FourierFTConfig(n_frequency=4, **MODULES),
    "RandLora": peft.RandLoraConfig(r=2, **MODULES),
    "SHiRA": peft.ShiraConfig(r=1, **MODULES),
    "HiRA": peft.HiraConfig(r=2, **MODULES),
    "C3A": peft.C3AConfig(block_size=4, **MODULES),
    "trained layer norms": peft.LNTuningConfig(target_modules=["LayerNorm"]),
    "trained token rows": peft.TrainableTokensConfig(target_modules=["word_embeddings"], token_indices=[1, 2]),
    "prompt tuning": peft.PromptTuningConfig(num_virtual_tokens=2, task_type="FEATURE_EXTRACTION"),
    "prefix tuning": peft.PrefixTuningConfig(num_virtual_tokens=2, task_type="FEATURE_EXTRACTION"),
}


def problems(folder: Path, config: Any) -> tuple[Problem, ...]:
    """Save an adapter of a tiny BERT and read it."""
    torch.manual_seed(0)
    base = saved("bert", head=False)
    get_peft_model(BertModel.from_pretrained(base), config).save_pretrained(str(folder))
    with pytest.raises(RefusedError) as caught:
        read_adapter(folder, read_base(base).manifest)
    return caught.value.problems


@pytest.mark.parametrize("name", OTHERS)
def test_another_method_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    (problem,) = problems(tmp_path, OTHERS[name])
    assert (problem.code, problem.path) == ("METHOD_UNSUPPORTED", ("adapter_config.json", "peft_type"))
    assert name.lower() in problem.hint.lower()


FEATURES: dict[str, dict[str, Any]] = {
    "use_bdlora": {"use_bdlora": BdLoraConfig(target_modules_bd_a=["query"], nblocks=2, match_strict=False)},
    "monteclora_config": {"monteclora_config": MontecloraConfig(num_samples=2)},
}  # fmt: skip


@pytest.mark.parametrize("field", FEATURES)
def test_a_variant_that_is_not_read_is_refused_by_its_field(tmp_path: Path, field: str) -> None:
    config = LoraConfig(r=2, lora_alpha=4, **MODULES, **FEATURES[field])
    assert ("FEATURE_UNSUPPORTED", field) in {
        (problem.code, problem.path[-1]) for problem in problems(tmp_path, config)
    }


def test_replicated_layers_are_refused_by_their_field(tmp_path: Path) -> None:
    base = saved("llama")
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"], layer_replication=[(0, 2), (1, 2)])
    get_peft_model(model("llama"), config).save_pretrained(str(tmp_path))
    with pytest.raises(RefusedError) as caught:
        read_adapter(tmp_path, read_base(base).manifest)
    assert ("FEATURE_UNSUPPORTED", "layer_replication") in {
        (problem.code, problem.path[-1]) for problem in caught.value.problems
    }


@pytest.mark.parametrize(("version", "refused"), [("0.18.1", {"FACTOR_AMBIGUOUS"}), ("0.19.0", set[str]())])
def test_square_experts_are_read_where_their_writer_went_by_the_layout_of_the_model(
    tmp_path: Path, version: str, refused: set[str]
) -> None:
    torch.manual_seed(0)
    base = tmp_path / "base"
    # Experts of 8 inputs and 8 outputs: before 0.19 b had the last axis, and nothing in the tensors tells.
    model("qwen3_moe", moe_intermediate_size=8).save_pretrained(base)
    config = LoraConfig(r=2, lora_alpha=4, target_modules=[], target_parameters=["experts.down_proj"])
    adapter = tmp_path / "adapter"
    get_peft_model(model("qwen3_moe", moe_intermediate_size=8), config).save_pretrained(str(adapter))
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"peft_version": version}))
    found: set[str] = set()
    try:
        read_adapter(adapter, read_base(base).manifest)
    except RefusedError as error:
        found = {problem.code for problem in error.problems}
    assert found == refused


def test_an_activated_lora_keeps_its_invocation(tmp_path: Path) -> None:
    base = saved("llama")
    config = LoraConfig(
        r=2, lora_alpha=4, target_modules=["q_proj"], task_type="CAUSAL_LM", alora_invocation_tokens=[3, 1, 4]
    )
    get_peft_model(model("llama"), config).save_pretrained(str(tmp_path))
    adapter = read_adapter(tmp_path, read_base(base).manifest).manifest
    assert (adapter.family, adapter.training) == ("alora", {"invocation_tokens": "3,1,4"})


def test_an_experts_parameter_without_factors_is_missed(tmp_path: Path) -> None:
    base = saved("mixtral")
    both = ["experts.gate_up_proj", "experts.down_proj"]
    config = LoraConfig(r=2, lora_alpha=4, target_modules=[], target_parameters=both[1:])
    get_peft_model(model("mixtral"), config).save_pretrained(str(tmp_path))
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"target_parameters": both}))
    with pytest.raises(RefusedError) as caught:
        read_adapter(tmp_path, read_base(base).manifest)
    assert [(problem.code, str(problem.path[-1]).rpartition(".")[2]) for problem in caught.value.problems] == [
        ("MODULES_MISSING", "gate_up_proj")
    ] * 2
