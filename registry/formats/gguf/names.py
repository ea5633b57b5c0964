"""The named rules that translate GGUF's keys and tensor names to those of transformers, per architecture.

llama.cpp reorders the rows of query and key weights of the llama architecture, so that the two rows rotated together
lie side by side; the numbers are the same, the order is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

KEYS: Final[Mapping[str, str]] = {
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
HEAD_WIDTHS: Final = ("attention.key_length", "attention.value_length", "rope.dimension_count")
"""All three are the width of one head; where they differ, heads are turned in part, which is not understood."""
NEEDED: Final = (
    "attention.head_count", "attention.layer_norm_rms_epsilon", "block_count", "context_length", "embedding_length",
    "feed_forward_length",
)  # fmt: skip
_WHOLE: Final = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK: Final = {
    "attn_k": "self_attn.k_proj",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "attn_output": "self_attn.o_proj",
    "attn_q": "self_attn.q_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_v": "self_attn.v_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.up_proj",
}
_BLOCK_NAME: Final = re.compile(r"blk\.(?P<layer>0|[1-9]\d{0,4})\.(?P<part>[a-z_]+)\.(?P<end>weight|bias)")
_PROJECTIONS: Final = frozenset({"attn_k", "attn_q", "attn_v"})
_NORMS: Final = frozenset({"attn_k_norm", "attn_q_norm"})


@dataclass(frozen=True)
class GgufArchitecture:
    """One architecture of GGUF.

    Attributes:
        model_type: what transformers calls it.
        rotary_rows: the order of the rows of query and key weights.
        parts: names of the tensors of a block.
        biased: those of them that have a bias too.
    """

    model_type: str
    rotary_rows: Literal["halves", "interleaved"]
    parts: frozenset[str]
    biased: frozenset[str] = frozenset()


_COMMON: Final = frozenset(_BLOCK) - _NORMS
ARCHITECTURES: Final[Mapping[str, GgufArchitecture]] = {
    "llama": GgufArchitecture("llama", "interleaved", _COMMON),
    "qwen2": GgufArchitecture("qwen2", "halves", _COMMON, _PROJECTIONS),
    "qwen3": GgufArchitecture("qwen3", "halves", _COMMON | _NORMS),
}


def canonical_name(architecture: GgufArchitecture, name: str, layers: int) -> str | None:
    """A tensor's name in transformers; null for one the rule does not know."""
    module, _, end = name.rpartition(".")
    if module in _WHOLE and end == "weight":
        return f"{_WHOLE[module]}.weight"
    match = _BLOCK_NAME.fullmatch(name)
    if match is None or int(match["layer"]) >= layers:
        return None
    allowed = architecture.parts if match["end"] == "weight" else architecture.biased
    if match["part"] not in allowed:
        return None
    return f"model.layers.{match['layer']}.{_BLOCK[match['part']]}.{match['end']}"
