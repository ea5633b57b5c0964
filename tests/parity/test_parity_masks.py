"""DARE with the masks PEFT 0.21.2 drew itself, captured while it ran and handed to our operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from compose.fields import Dropped, Field
from compose.masks import KeepMask, MaskRole
from compose.module import LoadedFactor, ModuleInput, ModuleOutput
from compose.operators.factorwise import combine
from compose.operators.refactor import Prepared, refactor
from schemas.methods import Choices, DareChoices, DtypeChoices, ties_preset
from tests.compose.building import digest_of
from tests.parity.models import adapted
from tests.parity.shim import Combination, Target, targets

WEIGHTS: Final = {"0": 0.5, "1": -1.25, "2": 0.75}
DENSITY: Final = 0.5


class PeftMasks(TorchFunctionMode):
    """Keeps every mask PEFT draws, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Copy a draw; everything passes."""
        value = func(*args, **(kwargs or {}))
        if func is torch.bernoulli:
            self.drawn.append(value.clone())
        return value


@pytest.mark.parametrize("kind", ["linear", "conv2d"])
@pytest.mark.parametrize("combination", ["dare_linear", "dare_ties", "dare_linear_svd", "dare_ties_svd"])
def test_dare_gives_the_delta_of_peft_under_its_own_masks(kind: str, combination: Combination) -> None:
    model = adapted(kind, {"r": 4, "lora_alpha": 8}, {"r": 4, "lora_alpha": 3}, {"r": 4, "lora_alpha": 12})
    with PeftMasks() as masks:
        model.add_weighted_adapter(list(WEIGHTS), list(WEIGHTS.values()), "peft", combination, density=DENSITY)
    drawn = iter(masks.drawn)
    for target in targets(model):
        output = composed(target, drawn, combination)
        expected = target.delta("peft")
        distance = torch.linalg.norm(output.b @ output.a - expected) / torch.linalg.norm(expected)
        assert float(distance) < 1e-6
    assert next(drawn, None) is None


def composed(target: Target, drawn: Iterator[Tensor], combination: Combination) -> ModuleOutput:
    """Our operator on the members of one layer, with captured masks in the place of drawn ones."""
    factors = tuple(
        LoadedFactor(digest_of(name), weight, float(target.layer.scaling[name]), *target.pair(name))
        for name, weight in WEIGHTS.items()
    )
    ties = ties_preset("peft", 1.0) if "ties" in combination else None
    dare = DareChoices(density=DENSITY, seed="0")
    module = ModuleInput("m", factors, Choices(dare=dare, ties=ties, dtype=DtypeChoices(store="float64")), 4)
    if combination.endswith("svd"):
        taken = {"delta": [keep(next(drawn)) for _ in factors]}
        return refactor(module, captured(taken), ties)
    taken = {"a": [keep(next(drawn)) for _ in factors], "b": [keep(next(drawn)) for _ in factors]}
    return combine(module, captured(taken), ties)


def captured(masks: Mapping[str, Sequence[KeepMask]]) -> Any:
    """The preparation of DARE, with given masks."""

    def prepare(_module: ModuleInput, fields: Sequence[Field], role: MaskRole) -> Prepared:
        dropped = [Dropped(each, mask, DENSITY) for each, mask in zip(fields, masks[role], strict=True)]
        return Prepared(dropped, (), dropped)

    return prepare


def keep(mask: Tensor) -> KeepMask:
    """A mask of zeros and ones, packed as ours are."""
    bits = mask.flatten().numpy() != 0
    return KeepMask(np.packbits(bits, bitorder="little"), bits.size, int(bits.sum()))
