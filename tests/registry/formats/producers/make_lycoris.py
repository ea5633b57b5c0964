"""Adapters of LyCORIS 3 itself on text models: `python -m tests.registry.formats.producers.make_lycoris`.

Needs `pip install --no-deps lycoris-lora toml einops` beside this repository's own environment; the directories it
writes are committed, so no test needs them.
"""

from __future__ import annotations

import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModel

from tests.registry.formats.producers.bases import base_weights, write_base

# By name, so that type checking does not need them.
lycoris: Any = import_module("lycoris")
presets: dict[str, Any] = import_module("lycoris.config").PRESET
DATA = Path(__file__).parent / "data"
KOHYA = {
    "ss_network_module": "lycoris.kohya",
    "ss_network_dim": "2",
    "ss_network_alpha": "3.0",
    "ss_network_args": '{"algo": "lora", "loraplus_lr_ratio": "16"}',
    "modelspec.license": "apache-2.0",
}


def main() -> None:
    """Write every case."""
    presets["tiny"] = {"target_module": ["LlamaAttention", "LlamaMLP", "BertLayer"]}
    write("kohya-bert-lycoris", "bert", {"algo": "lora"}, alpha=3.0)
    write("kohya-llama-rslora", "llama", {"algo": "lora", "rs_lora": True}, alpha=2.0)
    write("kohya-llama-dora", "llama", {"algo": "lora", "dora_wd": True}, alpha=1.0)
    write("kohya-bert-loha", "bert", {"algo": "loha"}, alpha=1.0)
    write("kohya-bert-lokr", "bert", {"algo": "lokr"}, alpha=1.0)


def write(name: str, model_type: str, options: dict[str, Any], alpha: float) -> None:
    """One directory: the file as LyCORIS saves it, and the weights after its own merge."""
    torch.manual_seed(len(name))
    with tempfile.TemporaryDirectory() as folder:
        model = AutoModel.from_pretrained(write_base(Path(folder), model_type), dtype=torch.float32)
    network = lycoris.create_lycoris(model, 1.0, linear_dim=2, linear_alpha=alpha, preset="tiny", **options)
    network.apply_to()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += torch.randn_like(parameter)
    target = DATA / name
    shutil.rmtree(target, ignore_errors=True)
    (target / "fused").mkdir(parents=True)
    network.save_weights(str(target / "lyco.safetensors"), torch.float32, dict(KOHYA))
    network.restore()
    network.merge_to(1.0)
    prefix = "model." if model_type == "llama" else ""
    after = {prefix + key: value.contiguous() for key, value in model.state_dict().items() if value.ndim == 2}
    stored = base_weights(model_type)
    save_file({key: after[key] for key in after if key in stored}, target / "fused" / "weights.safetensors")


if __name__ == "__main__":
    main()
