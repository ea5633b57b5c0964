"""config.json: the keys that change what a base computes, with the defaults transformers fills in.

A key is semantic (it becomes the architecture), ignorable (it cannot change the output of the forward pass), or neutral
at one value only. Any other key with a truthy value is refused by name: what is not understood is not a base.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from registry.errors import RefusedError
from registry.formats.fields import Fields
from registry.formats.report import located, problem, refuse_all
from schemas.base import Architecture, BertArchitecture, LlamaArchitecture, Rope
from schemas.canonical import JsonObject, JsonValue
from schemas.errors import Problem

CONFIG: Final = "config.json"
IGNORABLE: Final = frozenset({
    "_attn_implementation", "_name_or_path", "architectures", "attention_dropout", "attention_probs_dropout_prob",
    "attn_implementation", "bos_token_id", "chunk_size_feed_forward", "classifier_dropout", "dtype", "eos_token_id",
    "finetuning_task", "gradient_checkpointing", "hidden_dropout_prob", "id2label", "initializer_range",
    "is_llama_config", "label2id", "mask_token_id", "model_type", "output_attentions", "output_hidden_states",
    "pad_token_id", "problem_type", "return_dict", "sep_token_id", "tie_word_embeddings", "torch_dtype",
    "transformers.js_config", "transformers_version", "unk_token_id", "unsloth_version", "use_cache",
})  # fmt: skip
NEUTRAL: Final[dict[str, JsonValue]] = {"pretraining_tp": 1}
TIES_WORDS: Final = {"bert": True, "llama": False}
"""Whether transformers ties the output embedding to the input embedding when the config does not say."""
Parameter = float | bool | str | tuple[float, ...] | None
_ROPE_TYPES: Final = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
_BERT_KEYS: Final = frozenset(BertArchitecture.model_fields)
_LLAMA_KEYS: Final = frozenset(LlamaArchitecture.model_fields) - {"rope"} | {
    "rope_theta", "rope_scaling", "rope_parameters", "rope_interleaved",
}  # fmt: skip


def read_architecture(document: JsonObject) -> Architecture:
    """The architecture a config.json describes.

    Raises:
        RefusedError: `MODEL_TYPE_UNLISTED`, `BASE_QUANTIZED`, `CONFIG_KEY_UNKNOWN`, `CONFIG_FIELD_TYPE`,
            `CONFIG_FIELD_VALUE`, all at once.
    """
    model_type = document.get("model_type")
    if not isinstance(model_type, str) or model_type not in _READERS:
        raise RefusedError(_unlisted(model_type))
    semantic, read = _READERS[model_type]
    fields = Fields(document, CONFIG)
    _refuse_unknown(fields, semantic)
    with located(CONFIG):
        architecture = read(fields)
    refuse_all(fields.problems)
    return architecture


def ties_word_embeddings(document: JsonObject) -> bool:
    """Whether the output embedding is the input embedding, by the config or its model type's default."""
    value = document.get("tie_word_embeddings")
    return value if isinstance(value, bool) else TIES_WORDS[str(document["model_type"])]


def _refuse_unknown(fields: Fields, semantic: frozenset[str]) -> None:
    for key, value in fields.document.items():
        if key in semantic or key in IGNORABLE or not value or value == NEUTRAL.get(key):
            continue
        if key == "quantization_config":
            fields.refuse("BASE_QUANTIZED", key, "a base in floating point", value, "Register the unquantised weights.")
        else:
            hint = "This setting may change what the model computes and is not understood; it cannot be dropped."
            fields.refuse("CONFIG_KEY_UNKNOWN", key, "a key known for this model type", value, hint)


def _bert(fields: Fields) -> BertArchitecture:
    positions = fields.text("position_embedding_type", "absolute")
    if positions not in {"absolute", "relative_key", "relative_key_query"}:
        fields.refuse("CONFIG_FIELD_VALUE", "position_embedding_type", "a type transformers knows", positions)
    return BertArchitecture(
        model_type="bert",
        hidden_size=fields.integer("hidden_size", 768),
        num_hidden_layers=fields.integer("num_hidden_layers", 12),
        num_attention_heads=fields.integer("num_attention_heads", 12),
        intermediate_size=fields.integer("intermediate_size", 3072),
        hidden_act=fields.text("hidden_act", "gelu"),
        layer_norm_eps=fields.number("layer_norm_eps", 1e-12),
        max_position_embeddings=fields.integer("max_position_embeddings", 512),
        position_embedding_type=positions,
        type_vocab_size=fields.integer("type_vocab_size", 2),
        vocab_size=fields.integer("vocab_size", 30522),
    )


def _llama(fields: Fields) -> LlamaArchitecture:
    hidden = fields.integer("hidden_size", 4096)
    heads = fields.integer("num_attention_heads", 32)
    return LlamaArchitecture(
        model_type="llama",
        hidden_size=hidden,
        num_hidden_layers=fields.integer("num_hidden_layers", 32),
        num_attention_heads=heads,
        num_key_value_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", hidden // max(heads, 1)),
        intermediate_size=fields.integer("intermediate_size", 11008),
        hidden_act=fields.text("hidden_act", "silu"),
        rms_norm_eps=nearest_float32(fields.number("rms_norm_eps", 1e-6)),
        max_position_embeddings=fields.integer("max_position_embeddings", 2048),
        rope=_rope(fields),
        attention_bias=fields.boolean("attention_bias", False),
        mlp_bias=fields.boolean("mlp_bias", False),
        tie_word_embeddings=fields.boolean("tie_word_embeddings", TIES_WORDS["llama"]),
        vocab_size=fields.integer("vocab_size", 32000),
    )


def nearest_float32(value: float) -> float:
    """The shortest decimal of the nearest float32, so that 1e-5 and its single-precision copy are one number."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(value)))


def _rope(fields: Fields) -> Rope:
    """Both spellings (`rope_theta` with `rope_scaling`, or `rope_parameters`) as one."""
    if fields.document.get("rope_interleaved"):
        fields.refuse("CONFIG_FIELD_VALUE", "rope_interleaved", "false", True)
    given = dict(fields.table("rope_scaling")) | dict(fields.table("rope_parameters"))
    inner = Fields(given, CONFIG)
    theta = inner.number("rope_theta", fields.number("rope_theta", 10000.0))
    kind = inner.text("rope_type", inner.text("type", "default"))
    if kind not in _ROPE_TYPES:
        fields.refuse("CONFIG_FIELD_VALUE", "rope_type", f"one of {', '.join(_ROPE_TYPES)}", kind)
    left = {key: value for key, value in given.items() if key not in {"rope_theta", "rope_type", "type"}}
    parameters = {key: _parameter(inner, key, value) for key, value in left.items() if value is not None}
    fields.problems += inner.problems
    return Rope(rope_type=kind, rope_theta=theta, parameters=parameters)


def _parameter(fields: Fields, key: str, value: JsonValue) -> Parameter:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, list):
        numbers = tuple(float(item) for item in value if isinstance(item, int | float) and not isinstance(item, bool))
        if len(numbers) != len(value):
            fields.refuse("CONFIG_FIELD_TYPE", key, "numbers", value)
        return numbers
    return fields.number(key)


def _unlisted(model_type: JsonValue) -> Problem:
    listed = ", ".join(sorted(_READERS))
    hint = "This model type is not listed yet; its semantic keys must be known before it can have an identity."
    return problem("MODEL_TYPE_UNLISTED", (CONFIG, "model_type"), f"one of {listed}", repr(model_type)[:80], hint)


_READERS: Final[dict[str, tuple[frozenset[str], Callable[[Fields], Architecture]]]] = {
    "bert": (_BERT_KEYS, _bert),
    "llama": (_LLAMA_KEYS, _llama),
}
