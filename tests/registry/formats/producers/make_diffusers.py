"""Files diffusers 0.42 saves for a text encoder: `python -m tests.registry.formats.producers.make_diffusers`.

Needs `pip install --no-deps diffusers==0.42.1 pillow` beside this repository's own environment; the directories it
writes are committed, so no test needs them. A Llama stands for the text encoder, adapted and merged by PEFT.
"""

from __future__ import annotations

import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from tests.registry.formats.producers.bases import write_base

# By name, so that type checking does not need them.
pipeline: Any = import_module("diffusers.loaders").StableDiffusionLoraLoaderMixin
utils: Any = import_module("diffusers.utils")
training: Any = import_module("diffusers.training_utils")
DATA = Path(__file__).parent / "data"


def main() -> None:
    """Write every case."""
    write("diffusers-llama-metadata", {"r": 2, "lora_alpha": 6, "alpha_pattern": {"v_proj": 3}}, metadata=True)
    write("diffusers-llama-rslora", {"r": 4, "lora_alpha": 2, "use_rslora": True}, metadata=True)
    write("diffusers-llama-dora", {"r": 2, "lora_alpha": 4, "use_dora": True}, metadata=True)
    write("diffusers-llama-plain", {"r": 3, "lora_alpha": 3}, metadata=False)
    write("diffusers-llama-old", {"r": 3, "lora_alpha": 3}, metadata=False, old=True)


def write(name: str, options: dict[str, Any], *, metadata: bool, old: bool = False) -> None:
    """One directory: the file as the pipeline saves it, and the weights after PEFT's own merge."""
    torch.manual_seed(len(name))
    with tempfile.TemporaryDirectory() as folder:
        model = AutoModelForCausalLM.from_pretrained(write_base(Path(folder), "llama"), dtype=torch.float32)
    model.name_or_path = "tiny-llama"
    targets = ["q_proj", "v_proj"]
    adapted = get_peft_model(model, LoraConfig(init_lora_weights=False, target_modules=targets, **options))
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            if "magnitude" in key:
                parameter += torch.randn_like(parameter)
    state = {key.removeprefix("base_model.model."): value for key, value in get_peft_model_state_dict(adapted).items()}
    if old:
        state = utils.convert_state_dict_to_diffusers(state)
    target = DATA / name
    shutil.rmtree(target, ignore_errors=True)
    (target / "fused").mkdir(parents=True)
    extra = training._collate_lora_metadata({"text_encoder": adapted}) if metadata else {}
    pipeline.save_lora_weights(str(target), text_encoder_lora_layers=state, **extra)
    merged = adapted.merge_and_unload().state_dict()
    changed = {key: value.contiguous() for key, value in merged.items() if key.endswith("_proj.weight")}
    save_file(changed, target / "fused" / "weights.safetensors")


if __name__ == "__main__":
    main()
