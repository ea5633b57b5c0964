"""Small bases and adapters in the layouts real producers write, for tests that need many."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

HIDDEN = 8
LAYERS = 2
Array = NDArray[np.float32]
CONFIG = {
    "model_type": "bert",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 16,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "vocab_size": 32,
}
MODULES = tuple(
    f"encoder.layer.{layer}.attention.self.{name}" for layer in range(LAYERS) for name in ("query", "value")
)


def base_tensors(seed: int = 0) -> dict[str, Array]:
    """Weights of the modules that adapters touch, and an embedding."""
    draw = np.random.default_rng(seed)
    tensors = {"embeddings.word_embeddings.weight": draw.normal(size=(32, HIDDEN)).astype(np.float32)}
    for layer in range(LAYERS):
        for name in ("query", "key", "value"):
            module = f"encoder.layer.{layer}.attention.self.{name}"
            tensors[f"{module}.weight"] = draw.normal(size=(HIDDEN, HIDDEN)).astype(np.float32)
            tensors[f"{module}.bias"] = draw.normal(size=(HIDDEN,)).astype(np.float32)
    dense = draw.normal(size=(16, HIDDEN)).astype(np.float32)
    tensors["encoder.layer.0.intermediate.dense.weight"] = dense
    return tensors


def write_base(directory: Path, tensors: Mapping[str, Array] | None = None, shards: int = 1) -> Path:
    """Write a base directory, in one file or several with an index."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    items = list((tensors or base_tensors()).items())
    if shards == 1:
        save_file(dict(items), directory / "model.safetensors")
        return directory
    weight_map: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(items[number::shards])
        save_file(part, directory / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": sum(a.nbytes for _, a in items)}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return directory


def factors(seed: int, rank: int = 2, modules: tuple[str, ...] = MODULES) -> dict[str, Array]:
    """PEFT tensors of an adapter: `lora_A [rank, d_in]`, `lora_B [d_out, rank]` a module."""
    draw = np.random.default_rng(seed)
    tensors: dict[str, Array] = {}
    for module in modules:
        key = f"base_model.model.{module}"
        tensors[f"{key}.lora_A.weight"] = draw.normal(size=(rank, HIDDEN)).astype(np.float32)
        tensors[f"{key}.lora_B.weight"] = draw.normal(size=(HIDDEN, rank)).astype(np.float32)
    return tensors


def write_adapter(
    directory: Path, seed: int = 1, *, rank: int = 2, tensors: Mapping[str, Array] | None = None, **config: Any
) -> Path:
    """Write a PEFT directory; keyword arguments override its configuration."""
    directory.mkdir(parents=True)
    document = {
        "peft_type": "LORA",
        "peft_version": "0.21.2",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": "tiny",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "target_modules": ["query", "value"],
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
    } | config
    (directory / "adapter_config.json").write_text(json.dumps(document), encoding="utf-8")
    save_file(dict(tensors or factors(seed, rank)), directory / "adapter_model.safetensors")
    return directory


def delta(directory: Path, module: str) -> NDArray[np.float64]:
    """s B A of one module of a written adapter, in float64."""
    config = json.loads((directory / "adapter_config.json").read_text(encoding="utf-8"))
    tensors = load_file(directory / "adapter_model.safetensors")
    a = tensors[f"base_model.model.{module}.lora_A.weight"].astype(np.float64)
    b = tensors[f"base_model.model.{module}.lora_B.weight"].astype(np.float64)
    rank = a.shape[0]
    scale = config["lora_alpha"] / (np.sqrt(rank) if config["use_rslora"] else rank)
    product: NDArray[np.float64] = scale * (b @ a)
    return product
