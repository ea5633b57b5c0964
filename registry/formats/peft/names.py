"""How PEFT calls the tensors of a manifest: module names as the loading model has them, and a key for each role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from registry.formats.base.modules import Layer, layers
from registry.formats.base.naming import MODEL_TYPES, loaded_name
from registry.formats.peft.keys import ROOT
from schemas.adapter import ROWS, VALUES, AdapterManifest, FactorManifest, FullReplacement
from schemas.base import BaseManifest, TensorRef
from schemas.stacks import STACKS

STACKED: Final = "B[o,r,e]A[e,r,i]"
_ROLES = {"a": "lora_A.weight", "b": "lora_B.weight", "magnitude": "lora_magnitude_vector", "bias": "lora_B.bias"}
_TABLE_ROLES = {"a": "lora_embedding_A", "b": "lora_embedding_B", "magnitude": "lora_magnitude_vector"}
_TRIPLET_ROLES = {"a": "lora_A", "b": "lora_B", "E": "lora_E"}


@dataclass(frozen=True)
class Names:
    """The names of one adapter's modules in the model that loads it.

    A trained head needs the model with that head, which keeps the bare model under a prefix (`bert.`); an adapter
    without one is loaded into the model as the base stores it. `wrapped` says of each stacked parameter how many
    wrappers of its module lie outside its own.
    """

    model_type: str
    layers: Mapping[str, Layer]
    prefix: str
    wrapped: Mapping[str, int]

    def module(self, name: str) -> str:
        """A module of the base."""
        return self.prefix + loaded_name(self.model_type, name)

    def place(self, factor: FactorManifest) -> str:
        """Where the file keeps a factor's tensors: at its module, or at the wrapper of its parameter."""
        name = self.module(factor.module)
        if factor.order != STACKED:
            return name
        return name.rpartition(".")[0] + ".base_layer" * self.wrapped[factor.module]

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
    model_type = base.architecture.model_type
    return Names(model_type, known, prefix if known and headed and bare else "", wrappers(adapter, model_type))


def wrappers(adapter: AdapterManifest, model_type: str) -> dict[str, int]:
    """How many wrappers lie outside that of each stacked parameter: PEFT wraps a module's in the module's own order."""
    return {
        name: len(names) - 1 - position
        for names in stacked_modules(adapter).values()
        for position, name in enumerate(sorted(names, key=lambda name: parameter_position(name, model_type) or 0))
    }


def stacked_modules(adapter: AdapterManifest) -> dict[str, list[str]]:
    """The adapted stacked parameters of each module."""
    found: dict[str, list[str]] = {}
    for factor in adapter.factors:
        if factor.order == STACKED:
            found.setdefault(factor.module.rpartition(".")[0], []).append(factor.module)
    return found


def parameter_position(name: str, model_type: str) -> int | None:
    """Which of its module's parameters a stacked one is; null where that is not known."""
    loaded = tuple(STACKS[model_type].loaded) if model_type in STACKS else ()
    return next((index for index, path in enumerate(loaded) if f".{name}".endswith(f".{path}")), None)


def stored(name: str, base: BaseManifest) -> bool:
    """Whether the base has the tensor that is replaced."""
    return not isinstance(base.weights, str) and name.partition("#")[0] in base.weights


def factor_tensors(factor: FactorManifest, names: Names) -> Iterator[tuple[str, TensorRef]]:
    """Key and tensor of every role of a factor."""
    roles = _TRIPLET_ROLES if "E" in factor.extra else _TABLE_ROLES if names.kind(factor) == "embedding" else _ROLES
    for role, ref in ({"a": factor.a, "b": factor.b} | factor.extra).items():
        yield f"{ROOT}{names.place(factor)}.{roles[role]}", ref


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
