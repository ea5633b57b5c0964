"""What a weight's name means per model type: buffers, tied copies, and which matrices are Linear layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from registry.errors import RefusedError
from registry.formats.report import problem
from schemas.base import BaseManifest, WeightRef


@dataclass(frozen=True)
class ModelType:
    """Naming facts of one model type.

    `prefix` is what a head model puts before the bare model's names. `buffers` are stored by some releases and computed
    by the code, so they are no weights. `tied` maps a copy to its original. `embeddings` and `outputs` are suffixes of
    module names; outputs are what PEFT's `all-linear` leaves out.
    """

    prefix: str
    buffers: re.Pattern[str]
    tied: Mapping[str, str]
    embeddings: tuple[str, ...]
    outputs: tuple[str, ...]


MODEL_TYPES: Final = {
    "bert": ModelType(
        prefix="bert.",
        buffers=re.compile(r"(?:bert\.)?embeddings\.(?:position_ids|token_type_ids)"),
        tied={"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"},
        embeddings=("word_embeddings", "position_embeddings", "token_type_embeddings", "distance_embedding"),
        outputs=("cls.predictions.decoder",),
    ),
    "llama": ModelType(
        prefix="model.",
        buffers=re.compile(r"(?:model\.)?(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"),
        tied={"lm_head.weight": "model.embed_tokens.weight"},
        embeddings=("embed_tokens",),
        outputs=("lm_head",),
    ),
}


def distinct_weights(stored: Mapping[str, WeightRef], model_type: str, *, tied: bool) -> dict[str, WeightRef]:
    """The weights of identity: names verbatim, without buffers, tied copies once.

    Raises:
        RefusedError: `TIED_WEIGHTS_DIFFER` when the config ties two tensors that are stored with other numbers.
    """
    facts = MODEL_TYPES[model_type]
    weights = {name: ref for name, ref in stored.items() if not facts.buffers.fullmatch(name)}
    for copy, original in facts.tied.items():
        if not tied or copy not in weights or original not in weights:
            continue
        if weights[copy] != weights[original]:
            hint = "Set tie_word_embeddings to what the weights are, or save the model again."
            raise RefusedError(problem("TIED_WEIGHTS_DIFFER", (copy,), f"a copy of {original}", "another tensor", hint))
        del weights[copy]
    return weights


def matrix_modules(base: BaseManifest) -> dict[str, tuple[int, int]]:
    """Every module with a weight matrix, Linear [d_out, d_in] or embedding, with that matrix's shape.

    Raises:
        RefusedError: `BASE_SHAPES_UNKNOWN` for a base whose headers were never read.
    """
    if isinstance(base.weights, str):
        hint = "Register the base with evidence `structural` or `content`."
        expected, observed = "a base whose weight shapes are known", "evidence `declared`"
        raise RefusedError(problem("BASE_SHAPES_UNKNOWN", ("base",), expected, observed, hint))
    return {
        name.removesuffix(".weight"): (ref.shape[0], ref.shape[1])
        for name, ref in base.weights.items()
        if name.endswith(".weight") and len(ref.shape) == 2
    }


def is_embedding(base: BaseManifest, module: str) -> bool:
    """Whether a module with a weight matrix is a lookup table."""
    return module.rpartition(".")[2] in MODEL_TYPES[base.architecture.model_type].embeddings


def output_modules(base: BaseManifest) -> tuple[str, ...]:
    """The output embeddings, which `all-linear` leaves out."""
    return MODEL_TYPES[base.architecture.model_type].outputs
