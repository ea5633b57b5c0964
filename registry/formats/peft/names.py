"""How PEFT calls the tensors of a manifest: module names as the loading model has them, and a key for each role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from registry.formats.base.modules import Layer, layers
from registry.formats.base.naming import MODEL_TYPES, loaded_name
from registry.formats.peft.keys import ROOT
from schemas.adapter import ROWS, VALUES, AdapterManifest, FactorManifest, FullReplacement
from schemas.base import BaseManifest, TensorRef

_ROLES = {"a": "lora_A.weight", "b": "lora_B.weight", "magnitude": "lora_magnitude_vector", "bias": "lora_B.bias"}
_TABLE_ROLES = {"a": "lora_embedding_A", "b": "lora_embedding_B", "magnitude": "lora_magnitude_vector"}
_TRIPLET_ROLES = {"a": "lora_A", "b": "lora_B", "E": "lora_E"}


@dataclass(frozen=True)
class Names:
    """The names of one adapter's modules in the model that loads it.

    A trained head needs the model with that head, which keeps the bare model under a prefix (`bert.`); an adapter
    without one is loaded into the model as the base stores it.
    """

    model_type: str
    layers: Mapping[str, Layer]
    prefix: str

    def module(self, name: str) -> str:
        """A module of the base."""
        return self.prefix + loaded_name(self.model_type, name)

    def kind(self, factor: FactorManifest) -> str:
        """The kind of layer a factor adapts; `linear` where the base was never read."""
        layer = self.layers.get(factor.module)
        return "linear" if layer is None else layer.kind

    def replaced(self, name: str, base: BaseManifest) -> str:
        """The module a replaced tensor belongs to; a head's name is the model's own."""
        module = name.partition("#")[0].rpartition(".")[0]
        return self.module(module) if stored(name, base) else module


def names_of(adapter: AdapterManifest, base: BaseManifest) -> Names:
    """The names under which PEFT finds an adapter's modules."""
    known = {} if isinstance(base.weights, str) else layers(base)
    prefix = MODEL_TYPES[base.architecture.model_type].prefix
    headed = any(not stored(item.name, base) for item in adapter.full_replacements)
    bare = not any(name.startswith(prefix) for name in known)
    return Names(base.architecture.model_type, known, prefix if known and headed and bare else "")


def stored(name: str, base: BaseManifest) -> bool:
    """Whether the base has the tensor that is replaced."""
    return not isinstance(base.weights, str) and name.partition("#")[0] in base.weights


def factor_tensors(factor: FactorManifest, names: Names) -> Iterator[tuple[str, TensorRef]]:
    """Key and tensor of every role of a factor."""
    roles = _TRIPLET_ROLES if "E" in factor.extra else _TABLE_ROLES if names.kind(factor) == "embedding" else _ROLES
    for role, ref in ({"a": factor.a, "b": factor.b} | factor.extra).items():
        yield f"{ROOT}{names.module(factor.module)}.{roles[role]}", ref


def replaced_tensor(
    item: FullReplacement, names: Names, base: BaseManifest, adapted: frozenset[str]
) -> tuple[str, TensorRef] | None:
    """Key and tensor of a replacement; row numbers stand in the config."""
    if item.name.endswith(ROWS):
        return None
    module = names.replaced(item.name, base)
    if item.name.endswith(VALUES):
        return f"{ROOT}{module}.token_adapter.trainable_tokens_delta", item.value
    inside = f"{module}.base_layer" if module in adapted else module
    return f"{ROOT}{inside}.{item.name.rpartition('.')[2]}", item.value
