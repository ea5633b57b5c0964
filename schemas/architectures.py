"""Architectures of bases: for each model type the configuration fields that change what the model computes.

Every field is present with the value the model runs with, so that a default left out and a default written out are one
identity. `rms_norm_eps` is the nearest float32 decimal. Widths count features, `*_size` of vocabularies count rows.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.model import Count, Finite, Identifier, Record

LayerType = Literal["full_attention", "sliding_attention"]


class Rope(Record):
    """Rotary position embedding, normalised: `rope_type` `default` has no further parameters than theta."""

    rope_type: Identifier
    rope_theta: Finite
    parameters: dict[Identifier, Finite | bool | str | tuple[Finite, ...] | None]


class Architecture(Record):
    """What every base has: the name of its kind, which says what the other fields are."""

    model_type: str


class Encoder(Architecture):
    """A bidirectional encoder of the BERT family."""

    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    hidden_act: Identifier
    layer_norm_eps: Finite
    max_position_embeddings: Count
    position_embedding_type: Identifier
    type_vocab_size: Count
    vocab_size: Count


class BertArchitecture(Encoder):
    """BERT."""

    model_type: Literal["bert"]


class RobertaArchitecture(Encoder):
    """RoBERTa: positions count from `pad_token_id`, and padding has none."""

    model_type: Literal["roberta"]
    pad_token_id: Count


class DistilBertArchitecture(Architecture):
    """DistilBERT, in its own names."""

    model_type: Literal["distilbert"]
    dim: Count
    n_layers: Count
    n_heads: Count
    hidden_dim: Count
    activation: Identifier
    max_position_embeddings: Count
    vocab_size: Count


class Gpt2Architecture(Architecture):
    """GPT-2, in its own names; its attention and feed-forward layers are Conv1D, stored [d_in, d_out]."""

    model_type: Literal["gpt2"]
    n_embd: Count
    n_layer: Count
    n_head: Count
    n_inner: Count
    n_positions: Count
    activation_function: Identifier
    layer_norm_epsilon: Finite
    scale_attn_weights: bool
    scale_attn_by_inverse_layer_idx: bool
    reorder_and_upcast_attn: bool
    tie_word_embeddings: bool
    vocab_size: Count


class VitArchitecture(Architecture):
    """ViT; `image_size` and `patch_size` are height and width in pixels."""

    model_type: Literal["vit"]
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    intermediate_size: Count
    hidden_act: Identifier
    layer_norm_eps: Finite
    image_size: tuple[Count, Count]
    patch_size: tuple[Count, Count]
    num_channels: Count
    qkv_bias: bool
    encoder_stride: Count
    pooler_output_size: Count
    pooler_act: Identifier


class Decoder(Architecture):
    """A causal decoder with rotary positions; `head_dim` is the width of one head."""

    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    intermediate_size: Count
    max_position_embeddings: Count
    rope: Rope
    tie_word_embeddings: bool
    vocab_size: Count


class RmsDecoder(Decoder):
    """A decoder with RMS normalisation."""

    rms_norm_eps: Finite


class LlamaArchitecture(RmsDecoder):
    """Llama."""

    model_type: Literal["llama"]
    hidden_act: Identifier
    attention_bias: bool
    mlp_bias: bool


class MistralArchitecture(RmsDecoder):
    """Mistral; `sliding_window` holds for every layer."""

    model_type: Literal["mistral"]
    hidden_act: Identifier
    sliding_window: Count | None


class MixtralArchitecture(RmsDecoder):
    """Mixtral: every feed-forward layer is a mixture of experts."""

    model_type: Literal["mixtral"]
    hidden_act: Identifier
    sliding_window: Count | None
    num_local_experts: Count
    num_experts_per_tok: Count


class Qwen2Architecture(RmsDecoder):
    """Qwen2 and Qwen2.5; `sliding_window` is null where no layer slides."""

    model_type: Literal["qwen2"]
    hidden_act: Identifier
    layer_types: tuple[LayerType, ...]
    sliding_window: Count | None


class Qwen3Architecture(RmsDecoder):
    """Qwen3."""

    model_type: Literal["qwen3"]
    hidden_act: Identifier
    attention_bias: bool
    layer_types: tuple[LayerType, ...]
    sliding_window: Count | None


class SparseDecoder(RmsDecoder):
    """Qwen's mixtures: which layers have experts, how many, and how their weights are normalised."""

    hidden_act: Identifier
    moe_intermediate_size: Count
    num_experts: Count
    num_experts_per_tok: Count
    norm_topk_prob: bool
    decoder_sparse_step: Count
    mlp_only_layers: tuple[Count, ...]
    sliding_window: Count | None


class Qwen2MoeArchitecture(SparseDecoder):
    """Qwen1.5 and Qwen2 with experts."""

    model_type: Literal["qwen2_moe"]
    shared_expert_intermediate_size: Count
    qkv_bias: bool
    layer_types: tuple[LayerType, ...]


class Qwen3MoeArchitecture(SparseDecoder):
    """Qwen3 with experts; `sliding_window` holds for every layer."""

    model_type: Literal["qwen3_moe"]
    attention_bias: bool


class GemmaArchitecture(RmsDecoder):
    """Gemma."""

    model_type: Literal["gemma"]
    hidden_act: Identifier
    attention_bias: bool
    use_bidirectional_attention: bool


class AlternatingDecoder(RmsDecoder):
    """Gemma with sliding layers between full ones and soft caps on scores and logits (null: none)."""

    hidden_activation: Identifier
    attention_bias: bool
    query_pre_attn_scalar: Finite
    layer_types: tuple[LayerType, ...]
    sliding_window: Count | None
    attn_logit_softcapping: Finite | None
    final_logit_softcapping: Finite | None
    use_bidirectional_attention: bool


class Gemma2Architecture(AlternatingDecoder):
    """Gemma 2."""

    model_type: Literal["gemma2"]


class Gemma3Architecture(AlternatingDecoder):
    """The text part of Gemma 3: `rope` turns the full layers, `rope_local` the sliding ones."""

    model_type: Literal["gemma3_text"]
    rope_local: Rope


class PhiArchitecture(Decoder):
    """Phi-1, Phi-1.5 and Phi-2."""

    model_type: Literal["phi"]
    hidden_act: Identifier
    layer_norm_eps: Finite
    qk_layernorm: bool


class Phi3Architecture(RmsDecoder):
    """Phi-3 and Phi-4."""

    model_type: Literal["phi3"]
    hidden_act: Identifier
    original_max_position_embeddings: Count
    sliding_window: Count | None


KnownArchitecture = (
    BertArchitecture
    | DistilBertArchitecture
    | Gemma2Architecture
    | Gemma3Architecture
    | GemmaArchitecture
    | Gpt2Architecture
    | LlamaArchitecture
    | MistralArchitecture
    | MixtralArchitecture
    | Phi3Architecture
    | PhiArchitecture
    | Qwen2Architecture
    | Qwen2MoeArchitecture
    | Qwen3Architecture
    | Qwen3MoeArchitecture
    | RobertaArchitecture
    | VitArchitecture
)
AnyArchitecture = Annotated[KnownArchitecture, Field(discriminator="model_type")]
