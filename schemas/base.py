"""The base manifest: what exactly the frozen model is."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.architectures import AnyArchitecture
from schemas.canonical import JsonObject, canonical_bytes
from schemas.compute import ComputeContractManifest
from schemas.digests import Digest, manifest_digest
from schemas.model import Count, Identifier, Manifest, NotVerified, Record
from schemas.quantizers import PackedWeights, Quantizer
from schemas.stacks import STACKS


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


class TokenizerRef(Record):
    """Semantic tokenizer identity and its length in ids."""

    digest: Digest
    length: Count


class BaseManifest(Manifest):
    """A frozen base model (docs/adr/0001: weights carry dtype and shape, so that validators need no bytes).

    `weights` maps canonical names, verbatim, to tensors; `weights_digest` hashes that map, so two packagings of the
    same numbers agree. Both are `not_verified` where the evidence did not reach them. `compute_contracts` holds what is
    conditional in the base, whole, so that judging an adapter on it needs nothing else. `quantizer` is how weights are
    packed, `none` for plain numbers.
    """

    KIND: ClassVar[str] = "base"
    kind: Literal["base"] = "base"
    weights: dict[Identifier, WeightRef] | NotVerified
    weights_digest: Digest | NotVerified
    architecture: AnyArchitecture
    tokenizer: TokenizerRef | Literal["none"]
    quantizer: Literal["none"] | NotVerified | Quantizer = "none"
    compute_contracts: Literal["none"] | Annotated[tuple[ComputeContractManifest, ...], Field(min_length=1)] = "none"

    def shape_of(self, module: str) -> tuple[int, ...] | None:
        """The shape of a module's weight in elements, also where it is stored packed; null for none that is known."""
        if isinstance(self.quantizer, PackedWeights) and module in self.quantizer.packed:
            return self.quantizer.packed[module]
        if isinstance(self.weights, str):
            return None
        weight = self.weights.get(f"{module}.weight")
        return None if weight is None else weight.shape

    def stack_of(self, module: str) -> tuple[int, ...] | None:
        """The shape of a stacked parameter, stored as such or expert by expert; null for none that is known."""
        weights = {} if isinstance(self.weights, str) else self.weights

        def stored(name: str) -> tuple[int, ...] | None:
            return weights[name].shape if name in weights else None

        stack = STACKS.get(self.architecture.model_type)
        return stored(module) or (None if stack is None else stack.shape(module, stored))

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
