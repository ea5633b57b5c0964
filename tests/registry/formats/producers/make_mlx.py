"""Adapters saved by mlx-lm 0.32, and its own fused weights: `python -m tests.registry.formats.producers.make_mlx`.

Needs `pip install mlx==0.32.2 mlx-cpu==0.32.2 mlx-lm==0.32.2` beside this repository's own environment; the directories
it writes are committed, so no test needs them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.registry.formats.producers.bases import CONFIGS, write_base

# By name, so that type checking does not need them.
mx: Any = import_module("mlx.core")
tree: Any = import_module("mlx.utils")
tuner: Any = import_module("mlx_lm.tuner.utils")
saving: Any = import_module("mlx_lm.utils")
DATA = Path(__file__).parent / "data"
CASES: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "mlx-llama-lora": ("llama", {"rank": 3, "scale": 20.0, "dropout": 0.0}, 2, "lora"),
    "mlx-llama-keys": (
        "llama",
        {"rank": 2, "scale": 2.5, "dropout": 0.1, "keys": ["self_attn.q_proj", "mlp.down_proj", "model.embed_tokens"]},
        -1,
        "lora",
    ),
    "mlx-llama-dora": ("llama", {"rank": 2, "scale": 4.0, "dropout": 0.0}, 1, "dora"),
    "mlx-qwen2-lora": ("qwen2", {"rank": 4, "scale": 0.75, "dropout": 0.0}, 3, "lora"),
    "mlx-gpt2-lora": (
        "gpt2",
        {"rank": 2, "scale": 10.0, "dropout": 0.0, "keys": ["attn.c_attn", "mlp.c_proj"]},
        2,
        "lora",
    ),
}


def main() -> None:
    """Write every case."""
    for number, (name, (model_type, parameters, blocks, kind)) in enumerate(CASES.items()):
        mx.random.seed(number)
        target = DATA / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        write(target, model_type, parameters, blocks, kind)


def write(target: Path, model_type: str, parameters: dict[str, Any], blocks: int, kind: str) -> None:
    """One directory: the adapter and its config as the trainer saves them, the fused weights below."""
    model = load(model_type)
    model.freeze()
    tuner.linear_to_lora_layers(model, blocks, parameters, use_dora=kind == "dora")
    trained = [(key, mx.random.normal(value.shape)) for key, value in tree.tree_flatten(model.trainable_parameters())]
    model.load_weights(trained, strict=False)
    mx.save_safetensors(str(target / "adapters.safetensors"), dict(tree.tree_flatten(model.trainable_parameters())))
    mx.save_safetensors(str(target / "0000100_adapters.safetensors"), dict(trained[:2]))
    arguments = {
        "model": f"tiny-{model_type}", "train": True, "fine_tune_type": kind, "optimizer": "adam", "data": "none",
        "optimizer_config": {"adam": {}}, "seed": 0, "num_layers": blocks, "batch_size": 4, "iters": 100,
        "learning_rate": 1e-05, "adapter_path": "adapters", "save_every": 100, "lora_parameters": parameters,
        "lr_schedule": None, "grad_checkpoint": False, "mask_prompt": False, "report_to": None,
    }  # fmt: skip
    saving.save_config(arguments, target / "adapter_config.json")
    fused = dict(hub(name, module.fuse().weight) for name, module in model.named_modules() if hasattr(module, "fuse"))
    (target / "fused").mkdir()
    mx.save_safetensors(str(target / "fused" / "weights.safetensors"), fused)


def hub(name: str, weight: Any) -> tuple[str, Any]:
    """A fused weight under the hub's name and in its layout: the inverse of `sanitize`."""
    if name.startswith("model.h."):
        return f"transformer.{name.removeprefix('model.')}.weight", mx.contiguous(weight.T)
    return f"{name}.weight", weight


def load(model_type: str) -> Any:
    """mlx-lm's model with the weights of our base."""
    with tempfile.TemporaryDirectory() as folder:
        base = write_base(Path(folder), model_type)
        config = json.loads((base / "config.json").read_text())
        weights = dict(mx.load(str(base / "model.safetensors")))
        mx.eval(weights)
    module = import_module(f"mlx_lm.models.{model_type}")
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "num_key_value_heads": 1, "n_ctx": 6}
    defaults["layer_norm_epsilon"] = 1e-5
    model = module.Model(module.ModelArgs.from_dict(defaults | CONFIGS[model_type] | config))
    if model_type == "gpt2":
        weights = {key.removeprefix("transformer."): value for key, value in weights.items()}
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()), strict=False)
    return model


if __name__ == "__main__":
    main()
