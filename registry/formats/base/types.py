"""Per model type: its record, and for every field the value transformers takes where config.json is silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from registry.formats.base import rules
from registry.formats.base.rope import ROPE_KEYS
from registry.formats.base.rules import Rule
from schemas import architectures as known
from schemas.architectures import KnownArchitecture
from schemas.canonical import JsonValue

Default = bool | int | float | str | Rule


@dataclass(frozen=True)
class ConfigType:
    """How a model type's config.json becomes its record.

    Attributes:
        record: the architecture.
        fields: each field with its default or the rule that reads it.
        tied: whether transformers ties the output embedding to the input embedding when the config does not say.
        keys: further keys that rules read.
        names: other spellings of keys, as transformers' `attribute_map` has them.
        ignorable: keys without effect on this model type.
        neutral: keys understood at one value only.
    """

    record: type[KnownArchitecture]
    fields: Mapping[str, Default]
    tied: bool
    keys: frozenset[str] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    ignorable: frozenset[str] = frozenset()
    neutral: Mapping[str, JsonValue] = field(default_factory=dict)


_ENCODER: Final[dict[str, Default]] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}  # fmt: skip
_BERT: Final[dict[str, Default]] = _ENCODER | {
    "max_position_embeddings": 512, "position_embedding_type": rules.positions, "type_vocab_size": 2,
    "vocab_size": 30522,
}  # fmt: skip
_DISTILBERT: Final[dict[str, Default]] = {
    "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "activation": "gelu", "max_position_embeddings": 512,
    "vocab_size": 30522,
}  # fmt: skip
_GPT2: Final[dict[str, Default]] = {
    "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": rules.four_times, "n_positions": 1024,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False, "tie_word_embeddings": True,
    "vocab_size": 50257,
}  # fmt: skip
_VIT: Final[dict[str, Default]] = _ENCODER | {
    "image_size": rules.pair(224), "patch_size": rules.pair(16), "num_channels": 3, "qkv_bias": True,
    "encoder_stride": 16, "pooler_output_size": rules.same_as("hidden_size"), "pooler_act": "tanh",
}  # fmt: skip
_LLAMA: Final[dict[str, Default]] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": rules.same_as("num_attention_heads"), "head_dim": rules.head_dim, "intermediate_size": 11008,
    "hidden_act": "silu", "rms_norm_eps": rules.rms_eps, "max_position_embeddings": 2048, "rope": rules.rope(),
    "tie_word_embeddings": False, "vocab_size": 32000,
}  # fmt: skip
_MISTRAL: Final[dict[str, Default]] = _LLAMA | {
    "num_key_value_heads": rules.key_value_heads(8), "intermediate_size": 14336, "max_position_embeddings": 131072,
    "sliding_window": rules.integer_or_none(4096),
}  # fmt: skip
_QWEN2: Final[dict[str, Default]] = _LLAMA | {
    "num_key_value_heads": rules.key_value_heads(32), "intermediate_size": 22016, "max_position_embeddings": 32768,
    "vocab_size": 151936, "layer_types": rules.qwen_layers, "sliding_window": rules.qwen_window,
}  # fmt: skip
_SPARSE: Final[dict[str, Default]] = _LLAMA | {
    "hidden_size": 2048, "num_hidden_layers": 24, "max_position_embeddings": 32768, "vocab_size": 151936,
    "num_experts_per_tok": 4, "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": rules.layer_numbers,
}  # fmt: skip
_GEMMA: Final[dict[str, Default]] = _LLAMA | {
    "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": rules.key_value_heads(16), "head_dim": 256, "intermediate_size": 24576,
    "hidden_act": rules.gemma_act, "max_position_embeddings": 8192,
    "attention_bias": False, "use_bidirectional_attention": False, "tie_word_embeddings": True, "vocab_size": 256000,
}  # fmt: skip
_GEMMA2: Final[dict[str, Default]] = {key: rule for key, rule in _GEMMA.items() if key != "hidden_act"} | {
    "hidden_size": 2304, "num_hidden_layers": 26, "num_attention_heads": 8,
    "num_key_value_heads": rules.key_value_heads(4), "intermediate_size": 9216,
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256.0,
    "layer_types": rules.alternating_layers(2), "sliding_window": rules.window,
    "attn_logit_softcapping": rules.number_or_none(50.0), "final_logit_softcapping": rules.number_or_none(30.0),
}  # fmt: skip
_PHI: Final[dict[str, Default]] = {key: rule for key, rule in _LLAMA.items() if key != "rms_norm_eps"} | {
    "hidden_size": 2048, "num_hidden_layers": 24, "intermediate_size": 8192, "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5, "rope": rules.rope(partial=0.5), "qk_layernorm": False, "vocab_size": 51200,
}  # fmt: skip
_PHI3: Final[dict[str, Default]] = {"original_max_position_embeddings": 4096} | _LLAMA | {
    "hidden_size": 3072, "intermediate_size": 8192, "rms_norm_eps": rules.rms_eps_larger,
    "max_position_embeddings": 4096, "rope": rules.rope(partial=1.0),
    "sliding_window": rules.integer_or_none(None), "vocab_size": 32064,
}  # fmt: skip

_WINDOW_KEYS: Final = frozenset({"max_window_layers", "sliding_window", "use_sliding_window"})
_PARTIAL_ROPE: Final = ROPE_KEYS | {"partial_rotary_factor"}
_OLD_BERT: Final = frozenset({
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type",
})  # fmt: skip
"""Left in the configs of the first releases; nothing reads them."""

CONFIG_TYPES: Final[Mapping[str, ConfigType]] = {
    "bert": ConfigType(known.BertArchitecture, _BERT, tied=True, ignorable=_OLD_BERT),
    "distilbert": ConfigType(
        known.DistilBertArchitecture,
        _DISTILBERT,
        tied=True,
        names={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
        # How position embeddings start; the stored ones count.
        ignorable=frozenset({"sinusoidal_pos_embds", "tie_weights_"}),
    ),
    "gemma": ConfigType(
        known.GemmaArchitecture,
        _GEMMA,
        tied=True,
        keys=ROPE_KEYS | {"hidden_activation"},
    ),
    "gemma2": ConfigType(
        known.Gemma2Architecture,
        _GEMMA2,
        tied=True,
        keys=ROPE_KEYS,
        ignorable=frozenset({"hidden_act"}),
    ),
    "gemma3_text": ConfigType(
        known.Gemma3Architecture,
        _GEMMA2
        | {
            "max_position_embeddings": 131072,
            "rope": rules.ropes(0),
            "rope_local": rules.ropes(1),
            "layer_types": rules.alternating_layers(6),
            "sliding_window": rules.gemma3_window,
            "attn_logit_softcapping": rules.number_or_none(None),
            "final_logit_softcapping": rules.number_or_none(None),
            "vocab_size": 262208,
        },
        tied=True,
        keys=ROPE_KEYS | {"rope_local_base_freq", "sliding_window_pattern"},
        ignorable=frozenset({"_sliding_window_pattern", "hidden_act"}),
    ),
    "gpt2": ConfigType(
        known.Gpt2Architecture,
        _GPT2,
        tied=True,
        names={
            "hidden_size": "n_embd",
            "max_position_embeddings": "n_positions",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
        },
        ignorable=frozenset({"n_ctx"}),
        neutral={"summary_type": "cls_index", "summary_use_proj": True, "summary_proj_to_labels": True},
    ),
    "llama": ConfigType(
        known.LlamaArchitecture,
        _LLAMA | {"attention_bias": False, "mlp_bias": False},
        tied=False,
        keys=ROPE_KEYS,
    ),
    "mistral": ConfigType(known.MistralArchitecture, _MISTRAL, tied=False, keys=ROPE_KEYS),
    "mixtral": ConfigType(
        known.MixtralArchitecture,
        _MISTRAL
        | {
            "rms_norm_eps": rules.rms_eps_larger,
            "rope": rules.rope(1_000_000.0),
            "sliding_window": rules.integer_or_none(None),
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        tied=False,
        keys=ROPE_KEYS,
        names={"num_experts": "num_local_experts"},
    ),
    "phi": ConfigType(known.PhiArchitecture, _PHI, tied=False, keys=_PARTIAL_ROPE),
    "phi3": ConfigType(
        known.Phi3Architecture,
        _PHI3,
        tied=False,
        keys=_PARTIAL_ROPE,
        neutral={"full_attn_mod": 1, "interpolate_factor": 1},
    ),
    "qwen2": ConfigType(known.Qwen2Architecture, _QWEN2, tied=False, keys=ROPE_KEYS | _WINDOW_KEYS),
    "qwen2_moe": ConfigType(
        known.Qwen2MoeArchitecture,
        _SPARSE
        | {
            "num_attention_heads": 16,
            "num_key_value_heads": rules.key_value_heads(16),
            "intermediate_size": 5632,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts": 60,
            "qkv_bias": True,
            "layer_types": rules.qwen_moe_layers,
            "sliding_window": rules.qwen_window,
        },
        tied=False,
        keys=ROPE_KEYS | _WINDOW_KEYS,
    ),
    "qwen3": ConfigType(
        known.Qwen3Architecture,
        _QWEN2 | {"head_dim": 128, "attention_bias": False},
        tied=False,
        keys=ROPE_KEYS | _WINDOW_KEYS,
    ),
    "qwen3_moe": ConfigType(
        known.Qwen3MoeArchitecture,
        _SPARSE
        | {
            "num_key_value_heads": rules.key_value_heads(4),
            "intermediate_size": 6144,
            "attention_bias": False,
            "sliding_window": rules.qwen_window,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
        tied=False,
        keys=ROPE_KEYS | _WINDOW_KEYS,
        names={"num_local_experts": "num_experts"},
    ),
    "roberta": ConfigType(
        known.RobertaArchitecture,
        _BERT | {"pad_token_id": 1, "vocab_size": 50265},
        tied=True,
    ),
    "vit": ConfigType(known.VitArchitecture, _VIT, tied=False),
}
