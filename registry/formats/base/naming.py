"""What a weight's name means per model type: prefixes, buffers, tied copies, layer kinds, and renamings by release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.stacks import STACKS, Stack


@dataclass(frozen=True)
class ModelType:
    """Naming facts of one model type.

    Attributes:
        prefix: what a head model puts before the bare model's names.
        buffers: stored by some releases and computed by the code, so they are no weights.
        tied: copy to original, for head models whose config ties them.
        embeddings: last name parts of lookup tables.
        outputs: output embeddings, which PEFT's `all-linear` leaves out.
        conv1d: last name parts of layers whose weight is stored [d_in, d_out].
        routers: last name parts of gates that are Linear layers in some releases and bare parameters in others.
        stack: the experts of a mixture, where there are any.
        renamed: (stored, loaded) pieces of names that newer releases change while loading.
    """

    prefix: str
    buffers: re.Pattern[str]
    tied: Mapping[str, str]
    embeddings: tuple[str, ...]
    outputs: tuple[str, ...]
    conv1d: tuple[str, ...] = ()
    routers: tuple[str, ...] = ()
    stack: Stack | None = None
    renamed: tuple[tuple[str, str], ...] = ()


_ENCODER_TABLES: Final = ("word_embeddings", "position_embeddings", "token_type_embeddings", "distance_embedding")
_NO_BUFFERS: Final = re.compile(r"(?!)")


def _encoder(prefix: str, head: str, bias: str, outputs: str) -> ModelType:
    return ModelType(
        prefix=f"{prefix}.",
        buffers=re.compile(rf"(?:{prefix}\.)?embeddings\.(?:position_ids|token_type_ids)"),
        tied={f"{head}.weight": f"{prefix}.embeddings.word_embeddings.weight", f"{head}.bias": bias},
        embeddings=_ENCODER_TABLES,
        outputs=(outputs,),
    )


def _decoder(routers: tuple[str, ...] = (), stack: Stack | None = None, *renamed: tuple[str, str]) -> ModelType:
    return ModelType(
        prefix="model.",
        buffers=re.compile(r"(?:model\.)?(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"),
        tied={"lm_head.weight": "model.embed_tokens.weight"},
        embeddings=("embed_tokens",),
        outputs=("lm_head",),
        routers=routers,
        stack=stack,
        renamed=renamed,
    )


_VIT: Final = ModelType(
    prefix="vit.",
    buffers=_NO_BUFFERS,
    tied={},
    embeddings=(),
    outputs=(),
    renamed=(
        ("encoder.layer.", "layers."),
        (".attention.attention.query", ".attention.q_proj"),
        (".attention.attention.key", ".attention.k_proj"),
        (".attention.attention.value", ".attention.v_proj"),
        (".attention.output.dense", ".attention.o_proj"),
        (".intermediate.dense", ".mlp.fc1"),
        (".output.dense", ".mlp.fc2"),
    ),
)
_GPT2: Final = ModelType(
    prefix="transformer.",
    buffers=re.compile(r"(?:transformer\.)?h\.\d+\.(?:attn|crossattention)\.(?:masked_)?bias"),
    tied={"lm_head.weight": "transformer.wte.weight"},
    embeddings=("wte", "wpe"),
    outputs=("lm_head",),
    conv1d=("c_attn", "c_fc", "c_proj", "q_attn"),
)

MODEL_TYPES: Final[Mapping[str, ModelType]] = {
    "bert": _encoder("bert", "cls.predictions.decoder", "cls.predictions.bias", "cls.predictions.decoder"),
    "distilbert": ModelType(
        prefix="distilbert.",
        buffers=re.compile(r"(?:distilbert\.)?embeddings\.position_ids"),
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        embeddings=_ENCODER_TABLES,
        outputs=("vocab_projector",),
    ),
    "gemma": _decoder(),
    "gemma2": _decoder(),
    "gemma3_text": _decoder(),
    "gpt2": _GPT2,
    "llama": _decoder(),
    "mistral": _decoder(),
    "mixtral": _decoder(("gate",), STACKS["mixtral"], (".block_sparse_moe.", ".mlp.")),
    "phi": _decoder(),
    "phi3": _decoder(),
    "qwen2": _decoder(),
    "qwen2_moe": _decoder(("gate",), STACKS["qwen2_moe"]),
    "qwen3": _decoder(),
    "qwen3_moe": _decoder(("gate",), STACKS["qwen3_moe"]),
    "roberta": _encoder("roberta", "lm_head.decoder", "lm_head.bias", "lm_head.decoder"),
    "vit": _VIT,
}


def loaded_name(model_type: str, stored: str) -> str:
    """A module's or weight's name as transformers 5 has it in memory; mostly the stored one."""
    for old, new in MODEL_TYPES[model_type].renamed:
        stored = stored.replace(old, new)
    return stored
