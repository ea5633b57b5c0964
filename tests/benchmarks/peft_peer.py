"""PEFT 0.21.2 doing the same merge on modules of one shape, on all cores, as people run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor

from tests.compose.building import Pair


@dataclass(frozen=True)
class PeerMerge:
    """Wall-clock and processor seconds of one module, and the pair that came out."""

    seconds: float
    cpu: float
    a: Tensor
    b: Tensor


def peft_merge(members: Sequence[Pair], method: str, rank: int, density: float | None = None) -> PeerMerge:
    """One `add_weighted_adapter` over one module, weights 1 and scale 1."""
    d_out, d_in = members[0][1].shape[0], members[0][0].shape[1]
    model: Any = torch.nn.Sequential(torch.nn.Linear(d_in, d_out, bias=False))
    names = [f"m{index}" for index in range(len(members))]
    peft: Any = None
    for name, (a, _) in zip(names, members, strict=True):
        config = LoraConfig(r=a.shape[0], lora_alpha=a.shape[0], target_modules=["0"])
        if peft is None:
            peft = get_peft_model(model, config, adapter_name=name)
        else:
            peft.add_adapter(name, config)
    layer = peft.base_model.model[0]
    for name, (a, b) in zip(names, members, strict=True):
        layer.lora_A[name].weight.data = a.to(torch.float32)
        layer.lora_B[name].weight.data = b.to(torch.float32)
    options: dict[str, Any] = {"combination_type": method, "svd_rank": rank}
    if density is not None:
        options["density"] = density
    start, cpu = perf_counter(), process_time()
    peft.add_weighted_adapter(names, [1.0] * len(names), "merged", **options)
    seconds, cpu = perf_counter() - start, process_time() - cpu
    return PeerMerge(seconds, cpu, layer.lora_A["merged"].weight.detach(), layer.lora_B["merged"].weight.detach())
