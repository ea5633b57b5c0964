"""What a server that knows alpha / r alone makes of a directory: an independent reader of plain LoRA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

ROOT = "base_model.model."
Deltas = dict[str, NDArray[np.float64]]


def read_plain(directory: Path) -> Deltas:
    """``(lora_alpha / r) B A`` of every module; what such a reader ignores must be off, what it needs there.

    The delta is [d_out, d_in] as Linear layers have it, a table's [rows, d].
    """
    config: dict[str, Any] = json.loads((directory / "adapter_config.json").read_text(encoding="utf-8"))
    assert (config["peft_type"], config["lora_alpha"]) == ("LORA", config["r"])
    off = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "lora_bias")
    assert not any(config.get(key) for key in off)
    assert config["bias"] == "none"
    tensors = load_file(directory / "adapter_model.safetensors")
    assert len({tensor.dtype for tensor in tensors.values()}) == 1
    found: Deltas = {}
    for key in tensors:
        for a_role, b_role in (("lora_A.weight", "lora_B.weight"), ("lora_embedding_A", "lora_embedding_B")):
            if key.endswith(a_role):
                module = key.removeprefix(ROOT).removesuffix(f".{a_role}")
                a, b = (tensors[f"{ROOT}{module}.{role}"].astype(np.float64) for role in (a_role, b_role))
                assert a.shape[0] == b.shape[1] == config["r"]
                product = config["lora_alpha"] / config["r"] * (b @ a)
                found[module] = product.T if a_role == "lora_embedding_A" else product
    assert len(tensors) == 2 * len(found)
    assert {module.rpartition(".")[2] for module in found} == set(config["target_modules"])
    return found
