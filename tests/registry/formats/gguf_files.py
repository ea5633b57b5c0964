"""Small GGUF files, written by llama.cpp's own Python package as an independent witness."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from numpy.typing import NDArray

HIDDEN, INNER, WORDS, LAYERS = 64, 96, 40, 2
HEADS: Final[Mapping[str, tuple[int, int, int]]] = {"llama": (4, 2, 16), "qwen2": (4, 2, 16), "qwen3": (1, 1, 128)}
"""Query heads, key and value heads, and their width; transformers reads Qwen3's files with heads of 128 only."""
TOKENS: Final = [f"<{number}>" for number in range(WORDS)]
Arrays = dict[str, NDArray[np.float32]]


def shapes(architecture: str) -> dict[str, tuple[int, int]]:
    """The matrices of a block [d_out, d_in]."""
    heads, groups, width = HEADS.get(architecture, HEADS["llama"])
    return {
        "attn_q": (heads * width, HIDDEN),
        "attn_k": (groups * width, HIDDEN),
        "attn_v": (groups * width, HIDDEN),
        "attn_output": (HIDDEN, heads * width),
        "ffn_gate": (INNER, HIDDEN),
        "ffn_up": (INNER, HIDDEN),
        "ffn_down": (HIDDEN, INNER),
    }


def arrays(architecture: str = "llama", *, seed: int = 0) -> Arrays:
    """The tensors of a tiny decoder, by GGUF's names."""
    random = np.random.default_rng(seed)
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (WORDS, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        found |= {f"blk.{layer}.{part}.weight": shape for part, shape in shapes(architecture).items()}
        found |= {f"blk.{layer}.{part}.weight": (HIDDEN,) for part in ("attn_norm", "ffn_norm")}
        if architecture == "qwen2":
            found |= {
                f"blk.{layer}.{part}.bias": shapes(architecture)[part][:1] for part in ("attn_q", "attn_k", "attn_v")
            }
        if architecture == "qwen3":
            found |= {f"blk.{layer}.{part}.weight": (HEADS["qwen3"][2],) for part in ("attn_q_norm", "attn_k_norm")}
    return {name: random.standard_normal(shape, dtype=np.float32) for name, shape in found.items()}


def write_gguf(
    path: Path,
    tensors: Arrays | None = None,
    architecture: str = "llama",
    *,
    kind: str = "Q4_1",
    tokens: list[str] | None = None,
    **extra: Any,
) -> Path:
    """A GGUF file: matrices of blocks in `kind`, the rest F32; `extra` keys with `__` for a dot."""
    writer = GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    heads, groups, width = HEADS.get(architecture, HEADS["llama"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_vocab_size(WORDS)
    writer.add_rope_freq_base(1000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width)
    if architecture == "qwen3":
        writer.add_key_length(width)
        writer.add_value_length(width)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS if tokens is None else tokens)
    writer.add_chat_template(extra.pop("template", "{{ messages }}"))
    for key, value in extra.items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(key.replace("__", "."), value)
    number = GGMLQuantizationType[kind]
    for name, array in (arrays(architecture) if tensors is None else tensors).items():
        if array.ndim == 2 and name.startswith("blk."):
            writer.add_tensor(name, quants.quantize(array, number), raw_dtype=number)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
