"""Keys of config.json that say nothing about what a base computes, for every model type."""

from __future__ import annotations

from typing import Final

from schemas.canonical import JsonValue

CONFIG: Final = "config.json"
QUANTIZATION: Final = "quantization_config"
_RUNNING: Final = frozenset({
    "_attn_implementation", "_name_or_path", "attn_implementation", "cache_implementation", "chunk_size_feed_forward",
    "dtype", "gradient_checkpointing", "output_attentions", "output_hidden_states", "output_past", "return_dict",
    "tf_legacy_loss", "torch_dtype", "torchscript", "transformers_version", "unsloth_version", "unsloth_fixed",
    "use_bfloat16", "use_cache",
})  # fmt: skip
_TRAINING: Final = frozenset({
    "attention_dropout", "attention_probs_dropout_prob", "classifier_dropout", "dropout", "embd_pdrop", "attn_pdrop",
    "hidden_dropout_prob", "initializer_range", "output_router_logits", "problem_type", "qa_dropout", "resid_pdrop",
    "router_aux_loss_coef", "router_jitter_noise", "seq_classif_dropout", "summary_first_dropout",
})  # fmt: skip
_NAMING: Final = frozenset({
    "_model_name_or_path", "architectures", "auto_map", "finetuning_task", "id2label", "is_llama_config", "label2id",
    "model_type", "name_or_path", "task_specific_params", "tokenizer_class", "transformers.js_config",
})  # fmt: skip
"""`auto_map` names code of the repository; transformers runs its own for a listed type unless told to trust that."""
_GENERATION: Final = frozenset({
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "decoder_start_token_id", "diversity_penalty",
    "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty",
    "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "mask_token_id", "max_length", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "pad_token_id",
    "prefix", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "sep_token_id",
    "suppress_tokens", "temperature", "top_k", "top_p", "typical_p", "unk_token_id",
})  # fmt: skip
IGNORABLE: Final = _RUNNING | _TRAINING | _NAMING | _GENERATION | {"tie_word_embeddings"}
"""`tie_word_embeddings` decides which tensors are one weight; decoders hold it as a field besides."""
NEUTRAL: Final[dict[str, JsonValue]] = {"pretraining_tp": 1, "partial_rotary_factor": 1.0}
"""Keys that are understood at this value only."""
