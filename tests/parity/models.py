"""Small models with PEFT adapters on every kind of layer whose LoRA PEFT merges rightly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D


class Linears(nn.Module):
    """Two linear layers of different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.lin0 = nn.Linear(24, 32)
        self.lin1 = nn.Linear(32, 28, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [n, 24] -> [n, 28]."""
        y: Tensor = self.lin1(torch.relu(self.lin0(x)))
        return y


class Embeds(nn.Module):
    """A table of 40 rows, 24 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 24)


class Transposed(nn.Module):
    """The layer of GPT-2, which stores ``[d_in, d_out]``."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = Conv1D(28, 24)


class Convolves(nn.Module):
    """A 3 x 3 and a 1 x 1 kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(4, 20, 3)
        self.point = nn.Conv2d(20, 24, 1)


MODELS: Final[Mapping[str, tuple[Callable[[], nn.Module], tuple[str, ...]]]] = {
    "linear": (Linears, ("lin0", "lin1")),
    "embedding": (Embeds, ("table",)),
    "conv1d": (Transposed, ("conv",)),
    "conv2d": (Convolves, ("wide", "point")),
}


def adapted(kind: str, *configs: Mapping[str, Any], dtype: torch.dtype = torch.float64, seed: int = 0) -> Any:
    """A model of a kind with adapters `0`, `1`, ... of random factors; a configuration may override anything."""
    torch.manual_seed(seed)
    make, names = MODELS[kind]
    fixed = {"target_modules": list(names), "init_lora_weights": False, "fan_in_fan_out": kind == "conv1d"}
    made = [LoraConfig(**(fixed | dict(config))) for config in configs]
    model = get_peft_model(make(), made[0], adapter_name="0")
    for number, config in enumerate(made[1:], start=1):
        model.add_adapter(str(number), config)
    return model.to(dtype)
