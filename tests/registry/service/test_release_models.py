"""Dense releases as transformers loads them: the same weights as PEFT's merge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig

from registry.errors import RefusedError
from registry.service import add, export
from registry.service.admit import admit
from registry.service.context import Context
from registry.service.export import Form
from schemas.spec import CompositionSpec
from tests.support import stored
from tests.support.stored import Factor

pytestmark = [
    # transformers 5 warns of a name that PEFT 0.21 asks for; PEFT of the config that an older PEFT wrote.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

ADAPTERS: Final = Path(__file__).parents[2] / "data" / "adapters"
PROBE: Final = torch.tensor([[101, 2054, 2003, 1037, 15756, 102]])


def start_of(minilm: Path, adapter: Path) -> Any:
    """The model an adapter was trained on: the encoder, or it under the classifier of its three species."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    if config["task_type"] != "SEQ_CLS":
        return AutoModel.from_pretrained(minilm)
    return AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=3)


def merged_by_peft(model: Any, adapter: Path) -> dict[str, Tensor]:
    """PEFT's own merge, names without the head model's prefix."""
    merged: Any = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    return {name.removeprefix("bert."): value for name, value in merged.state_dict().items()}


@pytest.mark.parametrize("name", ["qa-lora", "style-pattern", "tone-rslora", "minilm-dora-rslora"])
def test_a_release_of_a_real_adapter_holds_what_peft_merges(
    context: Context, tmp_path: Path, minilm: Path, name: str
) -> None:
    add.add_base(context, minilm, "minilm")
    add.add_adapter(context, ADAPTERS / name, "minilm", "one")
    export.export(context, "one", tmp_path / "out", Form("minilm", "dense"))
    found: Any = AutoModel.from_pretrained(tmp_path / "out")
    wanted = merged_by_peft(start_of(minilm, ADAPTERS / name), ADAPTERS / name)
    for key, value in found.state_dict().items():
        torch.testing.assert_close(value, wanted[key], rtol=1e-6, atol=1e-6)
    changed = json.loads((tmp_path / "out" / "release.json").read_text(encoding="utf-8"))["weights"]
    base = AutoModel.from_pretrained(minilm).state_dict()
    assert {key for key, value in found.state_dict().items() if not torch.equal(value, base[key])} == changed.keys()
    with torch.no_grad():
        assert not torch.equal(found(PROBE).last_hidden_state, AutoModel.from_pretrained(minilm)(PROBE)[0])


def llama(hidden: int, layers: int, vocabulary: int, dtype: torch.dtype) -> Any:
    """A decoder with random weights."""
    config = LlamaConfig(
        hidden_size=hidden, intermediate_size=hidden * 8 // 3 // 8 * 8, num_hidden_layers=layers,
        num_attention_heads=hidden // 64 or 2, num_key_value_heads=hidden // 64 or 2, vocab_size=vocabulary,
        max_position_embeddings=128, tie_word_embeddings=False, dtype=dtype,
    )  # fmt: skip
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def train_nothing(base: Path, folder: Path, seed: int) -> Path:
    """A PEFT directory of random factors."""
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    adapted: Any = get_peft_model(model, config)
    torch.manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    adapted.save_pretrained(folder)
    return folder


def test_a_composition_released_on_bfloat16_shards_rounds_the_sum_once(context: Context, tmp_path: Path) -> None:
    base = tmp_path / "base"
    llama(32, 2, 64, torch.bfloat16).save_pretrained(base, max_shard_size="20KB")
    add.add_base(context, base, "tiny")
    for seed in (1, 2):
        add.add_adapter(context, train_nothing(base, tmp_path / f"a{seed}", seed), "tiny", f"a{seed}")
    spec = {
        "name": "both", "base": "tiny", "method": "cat", "space": "delta",
        "members": [{"ref": "a1", "weight": 0.75}, {"ref": "a2", "weight": -0.5}],
        "dtype": {"work": "float64", "store": "float64"},
    }  # fmt: skip
    assert admit(context, CompositionSpec.model_validate_json(json.dumps(spec))).composition is not None
    export.export(context, "both", tmp_path / "out", Form("tiny", "dense"))
    found: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    weights = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).state_dict()
    members = [(weight, deltas(tmp_path / f"a{seed}", base)) for seed, weight in ((1, 0.75), (2, -0.5))]
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == len(list(base.glob("*.safetensors"))) > 1
    for name, value in found.state_dict().items():
        exact = weights[name].double() + sum(weight * delta.get(name, 0.0) for weight, delta in members)
        # The nearest bfloat16 is at most half a unit in the last of its eight digits away.
        assert bool(((value.double() - exact).abs() <= exact.abs() * 2.0**-8 * (1 + 1e-9)).all())
    with torch.no_grad():
        assert bool(torch.isfinite(found(torch.arange(8)[None]).logits).all())


def deltas(adapter: Path, base: Path) -> dict[str, Tensor]:
    """What PEFT adds to each weight, from its own factors in float64."""
    model: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    found = {}
    for name, module in model.base_model.model.named_modules():
        if hasattr(module, "lora_A"):
            a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
            found[f"{name}.weight"] = module.scaling["default"] * (b.double() @ a.double()).detach()
    return found


def test_a_tied_output_takes_no_change_of_its_own(context: Context, tmp_path: Path) -> None:
    base = tmp_path / "base"
    model = llama(32, 1, 64, torch.float32)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(base)
    add.add_base(context, base, "tied")
    head = np.ones((64, 32), np.float32)
    for name, heads in (("output", {"lm_head.weight": head}), ("table", {"model.embed_tokens.weight": head})):
        stored.put(context, "tied", name, {"model.layers.0.self_attn.q_proj": square(32)}, heads)
        with pytest.raises(RefusedError) as refused:
            export.export(context, name, tmp_path / name, Form("tied", "dense"))
        assert [problem.code for problem in refused.value.problems] == ["NO_DENSE_RELEASE"]


def square(side: int) -> Factor:
    """A random factor of a square layer."""
    draw = np.random.default_rng(1)
    return Factor(draw.normal(size=(2, side)).astype(np.float32), draw.normal(size=(side, 2)).astype(np.float32))
