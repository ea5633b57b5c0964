"""PEFT's `add_weighted_adapter` on our engine: same model, same arguments, the result put back into the model.

PEFT keeps a pair per layer and adapter in the layer's own orientation; the engine knows matrices ``A [r, d_in]`` and
``B [d_out, r]`` alone. Embeddings and transposed layers hold ``(B A)^T``, convolutions a flattened kernel. A module
PEFT saves whole is a replacement of each of its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from peft import LoraConfig
from peft.tuners.lora import LoraLayer
from peft.utils import ModulesToSaveWrapper
from torch import Tensor

from compose import ComposeRequest, ComposeResult, Member
from schemas.methods import ALIASES, METHODS, Choices, DareChoices, DtypeChoices, PruneChoices, TiesChoices
from tests.compose import building

Combination = Literal[
    "svd", "linear", "cat", "ties", "ties_svd", "dare_ties", "dare_linear", "dare_ties_svd", "dare_linear_svd",
    "magnitude_prune", "magnitude_prune_svd",
]  # fmt: skip
COMBINATIONS: Final[tuple[Combination, ...]] = (
    "svd", "linear", "cat", "ties", "ties_svd", "dare_ties", "dare_linear", "dare_ties_svd", "dare_linear_svd",
    "magnitude_prune", "magnitude_prune_svd",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A layer PEFT adapts, by its name in the base model."""

    name: str
    layer: Any

    def holds(self, adapter: str) -> bool:
        """Whether the adapter has a pair here."""
        return adapter in self.layer.lora_A or adapter in self.layer.lora_embedding_A

    def pair(self, adapter: str) -> building.Pair:
        """The adapter's A and B as matrices."""
        a, b = self._parameters(adapter)
        return a.detach().flatten(1), b.detach().flatten(1)

    def put(self, adapter: str, a: Tensor, b: Tensor) -> None:
        """Overwrite the adapter's pair."""
        own = self._parameters(adapter)
        for parameter, value in zip(own, (a, b), strict=True):
            parameter.data = value.to(parameter.dtype).reshape(parameter.shape)

    def delta(self, adapter: str) -> Tensor:
        """PEFT's own delta of the adapter as a matrix ``[d_out, d_in]`` of the engine, in float64."""
        dense: Tensor = self.layer.get_delta_weight(adapter).detach().double().flatten(1)
        return dense.T if self.transposed else dense

    @property
    def transposed(self) -> bool:
        """Whether the layer stores its weight as ``[d_in, d_out]``."""
        return bool(self.layer.lora_embedding_A) or bool(getattr(self.layer, "fan_in_fan_out", False))

    def _parameters(self, adapter: str) -> tuple[Any, Any]:
        if adapter in self.layer.lora_A:
            return self.layer.lora_A[adapter].weight, self.layer.lora_B[adapter].weight
        return self.layer.lora_embedding_A[adapter], self.layer.lora_embedding_B[adapter]


def targets(model: Any) -> Iterator[Target]:
    """The adapted layers of a model, in PEFT's order."""
    for name, module in model.base_model.model.named_modules():
        if isinstance(module, LoraLayer):
            yield Target(name, module)


def add_weighted_adapter(
    model: Any,
    adapters: Sequence[str],
    weights: Sequence[float],
    adapter_name: str,
    combination_type: Combination = "svd",
    svd_rank: int | None = None,
    density: float | None = None,
    majority_sign_method: Literal["total", "frequency"] = "total",
    *,
    folder: Path,
    seed: str = "0",
) -> ComposeResult:
    """Compose with our engine and add the result to the model as `adapter_name`.

    The arguments are PEFT's; `folder` is where factors are written, `seed` DARE's. The output rank of a method that
    factors anew is the largest rank of the members, as in PEFT.

    Raises:
        ComposeRefusedError: nothing is added to the model then.
    """
    members = [
        _member(model, adapter, weight, folder / f"{index}")
        for index, (adapter, weight) in enumerate(zip(adapters, weights, strict=True))
    ]
    rank = svd_rank or max(factor.rank for member in members for factor in member.factors)
    asked = request(combination_type, members, rank, density, majority_sign_method, seed)
    result, tensors = building.run(asked, folder / "out")
    _inject(model, adapter_name, result, tensors)
    return result


def request(
    combination: Combination,
    members: Sequence[Member],
    rank: int,
    density: float | None,
    elect: Literal["total", "frequency"],
    seed: str,
) -> ComposeRequest:
    """PEFT's combination type in our words: method, space and the choices PEFT makes without saying so."""
    method, space = ALIASES.get(combination) or (METHODS[combination], "delta" if combination == "cat" else "factor")
    ties = "ties" in method
    dare = DareChoices(density=density, seed=seed) if "dare" in method and density is not None else None
    # PEFT does not trim what DARE left.
    kept = 1.0 if "dare" in method else density
    choices = Choices(
        rank=rank if space == "delta" and method != "cat" else None,
        ties=TiesChoices(density=kept, elect=elect, zero_sum="plus") if ties and kept is not None else None,
        dare=dare,
        prune=PruneChoices(density=density) if method == "magnitude_prune" and density is not None else None,
        dtype=DtypeChoices(store="float64"),
    )
    return ComposeRequest(method, space, choices, building.BASE, tuple(members))


def heads(model: Any, adapter: str) -> dict[str, Tensor]:
    """Tensors of the modules the adapter holds whole, by their name in the base model."""
    return {
        f"{name}.{key}": tensor
        for name, module in _wrappers(model)
        if adapter in module.modules_to_save
        for key, tensor in module.modules_to_save[adapter].state_dict().items()
    }


def _wrappers(model: Any) -> list[tuple[str, Any]]:
    modules = model.base_model.model.named_modules()
    return [(name, module) for name, module in modules if isinstance(module, ModulesToSaveWrapper)]


def _member(model: Any, adapter: str, weight: float, folder: Path) -> Member:
    folder.mkdir(parents=True)
    mine = [target for target in targets(model) if target.holds(adapter)]
    return building.member(
        folder,
        adapter,
        {target.name: target.pair(adapter) for target in mine},
        weight=float(weight),
        scales={target.name: float(target.layer.scaling[adapter]) for target in mine},
        replacements=heads(model, adapter),
    )


def _inject(model: Any, adapter: str, result: ComposeResult, tensors: dict[str, Tensor]) -> None:
    """A plain adapter on exactly the composed modules, every rank its own and every scale 1."""
    ranks = {record.module: record.output_rank for record in result.modules}
    patterns = {f"^{re.escape(name)}$": rank for name, rank in ranks.items()}
    whole = tuple(item.module for item in result.tensors if item.role == "full")
    saved = [name for name, _ in _wrappers(model) if any(tensor.startswith(f"{name}.") for tensor in whole)]
    config = LoraConfig(
        r=max(ranks.values()),
        lora_alpha=max(ranks.values()),
        target_modules=list(ranks),
        rank_pattern=patterns,
        alpha_pattern=dict(patterns),
        modules_to_save=saved or None,
        fan_in_fan_out=any(getattr(target.layer, "fan_in_fan_out", False) for target in targets(model)),
    )
    model.add_adapter(adapter, config)
    for target in targets(model):
        if target.name in ranks:
            target.put(adapter, tensors[f"{target.name}.lora_A"], tensors[f"{target.name}.lora_B"])
    for name, tensor in heads(model, adapter).items():
        tensor.copy_(tensors[name])
