"""The base manifest: what exactly the frozen model is."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.canonical import JsonObject, canonical_bytes
from schemas.compute import ComputeContractManifest
from schemas.digests import Digest, manifest_digest
from schemas.model import Count, Finite, Identifier, Manifest, NotVerified, Record


class TensorRef(Record):
    """A tensor by content. `dtype` as safetensors names it; `shape` as stored, in elements."""

    tensor: Digest
    dtype: Identifier
    shape: tuple[Count, ...]


class WeightRef(Record):
    """One base weight; below evidence `content` its bytes were not read, so the digest is `not_verified`."""

    tensor: Digest | NotVerified
    dtype: Identifier
    shape: tuple[Count, ...]


class BertArchitecture(Record):
    """Configuration keys that change what a BERT encoder computes."""

    model_type: Literal["bert"]
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


class Rope(Record):
    """Rotary position embedding, normalised: `rope_type` `default` has no further parameters than theta."""

    rope_type: Identifier
    rope_theta: Finite
    parameters: dict[Identifier, Finite | bool | str | tuple[Finite, ...] | None]


class LlamaArchitecture(Record):
    """Configuration keys that change what a Llama decoder computes; `rms_norm_eps` as the nearest float32 decimal."""

    model_type: Literal["llama"]
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    intermediate_size: Count
    hidden_act: Identifier
    rms_norm_eps: Finite
    max_position_embeddings: Count
    rope: Rope
    attention_bias: bool
    mlp_bias: bool
    tie_word_embeddings: bool
    vocab_size: Count


Architecture = Annotated[BertArchitecture | LlamaArchitecture, Field(discriminator="model_type")]


class TokenizerRef(Record):
    """Semantic tokenizer identity and its length in ids."""

    digest: Digest
    length: Count


class BaseManifest(Manifest):
    """A frozen base model (docs/adr/0001: weights carry dtype and shape, so that validators need no bytes).

    `weights` maps canonical names, verbatim, to tensors; `weights_digest` hashes that map, so two packagings of the
    same numbers agree. Both are `not_verified` where the evidence did not reach them. `compute_contracts` holds what is
    conditional in the base, whole, so that judging an adapter on it needs nothing else.
    """

    KIND: ClassVar[str] = "base"
    kind: Literal["base"] = "base"
    weights: dict[Identifier, WeightRef] | NotVerified
    weights_digest: Digest | NotVerified
    architecture: Architecture
    tokenizer: TokenizerRef | Literal["none"]
    quantizer: Literal["none"] = "none"
    compute_contracts: Literal["none"] | Annotated[tuple[ComputeContractManifest, ...], Field(min_length=1)] = "none"

    @model_validator(mode="after")
    def _weights_agree(self) -> Self:
        if self.weights_digest != weights_digest(self.weights):
            raise ValueError("weights_digest does not belong to weights")
        return self


def weights_digest(weights: dict[str, WeightRef] | NotVerified) -> Digest | NotVerified:
    """Digest of the weight map, or `not_verified` when any tensor of it is."""
    if weights == "not_verified" or not isinstance(weights, dict):
        return "not_verified"
    if any(weight.tensor == "not_verified" for weight in weights.values()):
        return "not_verified"
    document: JsonObject = {name: weight.document() for name, weight in weights.items()}
    return manifest_digest("weights", canonical_bytes(document))
