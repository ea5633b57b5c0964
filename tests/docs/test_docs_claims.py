"""What the README says of PEFT holds for the release that the tests install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

IDS = torch.tensor([[101, 2129, 2079, 1045, 102]])


def query(model: Any) -> Any:
    """One adapted layer."""
    return model.base_model.model.encoder.layer[3].attention.self.query


def answer(model: Any) -> torch.Tensor:
    """The last hidden state for a few fixed ids."""
    with torch.inference_mode():
        found: torch.Tensor = model.eval()(IDS).last_hidden_state
    return found


@pytest.mark.parametrize(
    ("first", "second", "factor"), [("tone-rslora", "qa-lora", 12**0.5), ("qa-lora", "tone-rslora", 1.0)]
)
def test_peft_scales_a_sum_by_the_first_members_rule(
    minilm: Path, adapters: Path, first: str, second: str, factor: float
) -> None:
    model = PeftModel.from_pretrained(AutoModel.from_pretrained(minilm), adapters / first, adapter_name="first")
    model.load_adapter(adapters / second, "second")
    layer = query(model)
    exact = layer.get_delta_weight("first") + 0.5 * layer.get_delta_weight("second")
    model.add_weighted_adapter(["first", "second"], [1.0, 0.5], "sum", combination_type="cat")
    torch.testing.assert_close(layer.get_delta_weight("sum"), factor * exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variant", [{"use_dora": True}, {"lora_bias": True}])
def test_peft_leaves_magnitude_and_bias_behind_in_a_merge_of_one(minilm: Path, variant: dict[str, bool]) -> None:
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["query"], **variant)
    model = get_peft_model(AutoModel.from_pretrained(minilm), config, adapter_name="own")
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_" in name:
                value.add_(torch.randn_like(value) * 0.3)
    own = answer(model)
    model.add_weighted_adapter(["own"], [1.0], "merged", combination_type="cat")
    model.set_adapter("merged")
    assert (answer(model) - own).norm() > 0.01 * own.norm()


def test_peft_loads_an_adapter_with_foreign_keys_and_answers_with_the_base(
    minilm: Path, adapters: Path, tmp_path: Path
) -> None:
    source = adapters / "qa-lora"
    (tmp_path / "adapter_config.json").write_bytes((source / "adapter_config.json").read_bytes())
    renamed = {
        key.replace("base_model.model.", "base_model.model.bert."): value
        for key, value in load_file(source / "adapter_model.safetensors").items()
    }
    save_file(renamed, tmp_path / "adapter_model.safetensors")
    with pytest.warns(UserWarning, match="missing adapter keys"):
        model = PeftModel.from_pretrained(AutoModel.from_pretrained(minilm), tmp_path)
    torch.testing.assert_close(answer(model), answer(AutoModel.from_pretrained(minilm)), rtol=0.0, atol=0.0)
