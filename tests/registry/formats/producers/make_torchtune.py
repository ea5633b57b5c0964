"""Adapters of torchtune 0.6 itself, and its own merge: `python -m tests.registry.formats.producers.make_torchtune`.

Needs `pip install torchtune==0.6.1 torchao==0.10.0` beside this repository's own environment; the directories it
writes are committed, so no test needs them. The adapter checkpoint torchtune pickles is saved as safetensors, its own
keys kept.
"""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.registry.formats.producers.bases import CONFIGS, base_weights

# By name, so that type checking does not need them.
convert: Any = import_module("torchtune.models.convert_weights")
llama3: Any = import_module("torchtune.models.llama3._component_builders")
qwen2: Any = import_module("torchtune.models.qwen2._component_builders")
qwen2_convert: Any = import_module("torchtune.models.qwen2._convert_weights")
peft: Any = import_module("torchtune.modules.peft")
DATA = Path(__file__).parent / "data"
RANK, ALPHA = 2, 6.0
HALF = ["q_proj", "k_proj"]


def main() -> None:
    """Write every case."""
    write("torchtune-llama-lora", "llama", ["q_proj", "k_proj", "v_proj", "output_proj"], mlp=True, output=True)
    write("torchtune-llama-dora", "llama", HALF, dora=True)
    write("torchtune-qwen2-lora", "qwen2", ["q_proj", "v_proj"], mlp=True)
    write("torchtune-llama-export", "llama", ["q_proj", "k_proj", "v_proj"], export=True)


def write(
    name: str, kind: str, attention: list[str], mlp: bool = False, output: bool = False, dora: bool = False,
    export: bool = False,
) -> None:  # fmt: skip
    """One directory: the adapter's own keys (or torchtune's export to PEFT), its config, and the merged hub weights."""
    torch.manual_seed(len(name))
    config = CONFIGS[kind]
    model = build(kind, attention, mlp, output, dora)
    for module in model.modules():
        if dora and hasattr(module, "initialize_dora_magnitude"):
            module.initialize_dora_magnitude()
    with torch.no_grad():
        for parameter in peft.get_adapter_params(model).values():
            parameter += torch.randn_like(parameter)
    adapter = {key: value.detach().clone() for key, value in peft.get_adapter_params(model).items()}
    document: dict[str, Any] = {
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": peft.get_lora_module_names(list(attention), mlp, output),
        "peft_type": "LORA",
    }
    heads = {"num_heads": config["num_attention_heads"], "num_kv_heads": config["num_key_value_heads"]}
    sizes = {**heads, "dim": config["hidden_size"], "head_dim": config.get("head_dim")}
    if export:
        adapter = convert.tune_to_peft_adapter_weights(adapter, **sizes)
        document = convert.tune_to_peft_adapter_config(document, f"tiny-{kind}")
    merged = peft.get_merged_lora_ckpt(dict(model.state_dict()), RANK, ALPHA)
    hub = (qwen2_convert.qwen2_tune_to_hf if kind == "qwen2" else convert.tune_to_hf)(merged, **sizes)
    target = DATA / name
    shutil.rmtree(target, ignore_errors=True)
    (target / "fused").mkdir(parents=True)
    (target / "adapter_config.json").write_text(json.dumps(document))
    contiguous = {key: value.contiguous() for key, value in adapter.items()}
    save_file(contiguous, target / "adapter_model.safetensors", metadata={"format": "pt"})
    adapted = ("_proj.weight", "lm_head.weight")
    changed = {key: value.contiguous() for key, value in hub.items() if key.endswith(adapted)}
    save_file(changed, target / "fused" / "weights.safetensors")


def build(kind: str, attention: list[str], mlp: bool, output: bool, dora: bool) -> Any:
    """torchtune's model with the weights of our base."""
    config = CONFIGS[kind]
    sizes: dict[str, Any] = {
        "num_heads": config["num_attention_heads"],
        "num_kv_heads": config["num_key_value_heads"],
    }
    weights = {key: torch.from_numpy(value) for key, value in base_weights(kind).items()}
    from_hub = qwen2_convert.qwen2_hf_to_tune if kind == "qwen2" else convert.hf_to_tune
    tuned = from_hub(weights, dim=config["hidden_size"], **sizes)
    model = (qwen2.lora_qwen2 if kind == "qwen2" else llama3.lora_llama3)(
        lora_attn_modules=attention,
        apply_lora_to_mlp=mlp,
        apply_lora_to_output=output,
        vocab_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        embed_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        max_seq_len=16,
        lora_rank=RANK,
        lora_alpha=ALPHA,
        use_dora=dora,
        **sizes,
    )
    missing = model.load_state_dict(tuned, strict=False)
    assert not missing.unexpected_keys
    return model


if __name__ == "__main__":
    main()
