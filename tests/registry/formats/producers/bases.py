"""Small bases with seeded weights: a Llama with grouped heads, a Qwen2, a Gemma, a GPT-2 and a BERT."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

HIDDEN, INNER, HEADS, GROUPS, HEAD_DIM, LAYERS, VOCABULARY = 8, 12, 4, 2, 4, 3, 11
WIDE: Final = HEADS * HEAD_DIM
Arrays = dict[str, NDArray[Any]]

_DECODER: Final[dict[str, Any]] = {
    "hidden_size": WIDE,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 16,
    "tie_word_embeddings": False,
}
# Qwen2 and Phi have no head_dim of their own: it is hidden_size / heads.
_QWEN: Final = {key: value for key, value in _DECODER.items() if key != "head_dim"}
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "llama": {"model_type": "llama", **_DECODER},
    "mistral": {"model_type": "mistral", **_DECODER, "hidden_size": HIDDEN, "sliding_window": None},
    "gemma": {"model_type": "gemma", **_DECODER},
    "qwen2": {"model_type": "qwen2", **_QWEN},
    "phi": {"model_type": "phi", **_QWEN},
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": HIDDEN,
        "n_layer": LAYERS,
        "n_head": 2,
        "n_positions": 6,
        "vocab_size": VOCABULARY,
    },
    "bert": {
        "model_type": "bert",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": 2,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 5,
        "vocab_size": VOCABULARY,
    },
}


def write_base(directory: Path, model_type: str, seed: int = 0) -> Path:
    """A base directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIGS[model_type]))
    save_file(base_weights(model_type, seed), directory / "model.safetensors")
    return directory


def base_weights(model_type: str, seed: int = 0) -> Arrays:
    """The weights in float32, under the hub's names."""
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape, dtype=np.float32) for name, shape in _shapes(model_type)}


def _shapes(model_type: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    if model_type == "gpt2":
        yield from _gpt2()
    elif model_type == "bert":
        yield from _bert()
    else:
        yield from _decoder(CONFIGS[model_type])


def _decoder(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden = config["hidden_size"]
    phi = config["model_type"] == "phi"
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        yield f"{place}.self_attn.q_proj.weight", (HEADS * HEAD_DIM, hidden)
        yield f"{place}.self_attn.k_proj.weight", (GROUPS * HEAD_DIM, hidden)
        yield f"{place}.self_attn.v_proj.weight", (GROUPS * HEAD_DIM, hidden)
        if config["model_type"] in {"qwen2", "phi"}:
            yield f"{place}.self_attn.q_proj.bias", (HEADS * HEAD_DIM,)
            yield f"{place}.self_attn.k_proj.bias", (GROUPS * HEAD_DIM,)
            yield f"{place}.self_attn.v_proj.bias", (GROUPS * HEAD_DIM,)
        yield f"{place}.self_attn.{'dense' if phi else 'o_proj'}.weight", (hidden, HEADS * HEAD_DIM)
        if phi:
            yield f"{place}.mlp.fc1.weight", (INNER, hidden)
            yield f"{place}.mlp.fc2.weight", (hidden, INNER)
        else:
            yield f"{place}.mlp.gate_proj.weight", (INNER, hidden)
            yield f"{place}.mlp.up_proj.weight", (INNER, hidden)
            yield f"{place}.mlp.down_proj.weight", (hidden, INNER)
            yield f"{place}.post_attention_layernorm.weight", (hidden,)
        yield f"{place}.input_layernorm.weight", (hidden,)
    yield f"model.{'final_layernorm' if phi else 'norm'}.weight", (hidden,)
    yield "lm_head.weight", (VOCABULARY, hidden)


def _gpt2() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "transformer.wte.weight", (VOCABULARY, HIDDEN)
    yield "transformer.wpe.weight", (6, HIDDEN)
    for layer in range(LAYERS):
        place = f"transformer.h.{layer}"
        for norm in ("ln_1", "ln_2"):
            yield f"{place}.{norm}.weight", (HIDDEN,)
            yield f"{place}.{norm}.bias", (HIDDEN,)
        for leaf, d_in, d_out in (
            ("attn.c_attn", HIDDEN, 3 * HIDDEN),
            ("attn.c_proj", HIDDEN, HIDDEN),
            ("mlp.c_fc", HIDDEN, 4 * HIDDEN),
            ("mlp.c_proj", 4 * HIDDEN, HIDDEN),
        ):
            yield f"{place}.{leaf}.weight", (d_in, d_out)
            yield f"{place}.{leaf}.bias", (d_out,)
    yield "transformer.ln_f.weight", (HIDDEN,)
    yield "transformer.ln_f.bias", (HIDDEN,)


def _bert() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "embeddings.word_embeddings.weight", (VOCABULARY, HIDDEN)
    yield "embeddings.position_embeddings.weight", (5, HIDDEN)
    for layer in range(LAYERS):
        place = f"encoder.layer.{layer}"
        for leaf in ("query", "key", "value"):
            yield f"{place}.attention.self.{leaf}.weight", (HIDDEN, HIDDEN)
        yield f"{place}.attention.output.dense.weight", (HIDDEN, HIDDEN)
        yield f"{place}.intermediate.dense.weight", (INNER, HIDDEN)
        yield f"{place}.output.dense.weight", (HIDDEN, INNER)
