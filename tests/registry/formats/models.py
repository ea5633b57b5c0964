"""Tiny random models of every listed type, made and saved by transformers as an independent witness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
)

Config = Mapping[str, Any]
_WIDE: Final[Config] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
_TEXT: Final[Config] = {**_WIDE, "vocab_size": 20, "max_position_embeddings": 16, "pad_token_id": 0}
_GROUPED: Final[Config] = {**_TEXT, "num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2}
_HEADS: Final[Config] = {**_GROUPED, "head_dim": 4}
_EXPERTS: Final[Config] = {**_GROUPED, "num_experts": 3, "moe_intermediate_size": 5, "num_experts_per_tok": 2}
TINY: Final[Mapping[str, Config]] = {
    "bert": _TEXT,
    "distilbert": {
        "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12, "vocab_size": 20, "max_position_embeddings": 16,
    },
    "gemma": _HEADS,
    "gemma2": _HEADS,
    "gemma3_text": {**_HEADS, "num_hidden_layers": 6},
    "gpt2": {
        "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 20, "n_positions": 16, "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "llama": _GROUPED,
    "mistral": _GROUPED,
    "mixtral": {**_GROUPED, "num_local_experts": 3},
    "phi": {**_TEXT, "bos_token_id": 1, "eos_token_id": 2},
    "phi3": _GROUPED,
    "qwen2": _GROUPED,
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 7, "mlp_only_layers": [1]},
    "qwen3": _HEADS,
    "qwen3_moe": {**_EXPERTS, "head_dim": 4},
    "roberta": {**_TEXT, "pad_token_id": 1},
    "vit": {**_WIDE, "image_size": 8, "patch_size": 4},
}  # fmt: skip
_HEAD_MODELS: Final[Mapping[str, Any]] = {
    "bert": AutoModelForMaskedLM,
    "distilbert": AutoModelForMaskedLM,
    "roberta": AutoModelForMaskedLM,
    "vit": AutoModelForImageClassification,
}


def model(model_type: str, *, head: bool = True, **config: Any) -> Any:
    """A random model with a head, or the bare one."""
    torch.manual_seed(0)
    found = AutoConfig.for_model(model_type, **{**TINY[model_type], **config})
    maker: Callable[[Any], Any] = (
        _HEAD_MODELS.get(model_type, AutoModelForCausalLM) if head else AutoModel
    ).from_config
    return maker(found).eval()


def save(made: Any, directory: Path, **how: Any) -> Path:
    """The directory `save_pretrained` writes."""
    made.save_pretrained(directory, **how)
    return directory


@lru_cache
def saved(model_type: str, *, head: bool = True) -> Path:
    """A directory with the tiny model; made once."""
    return save(model(model_type, head=head), Path(mkdtemp(prefix=f"{model_type}-")))
