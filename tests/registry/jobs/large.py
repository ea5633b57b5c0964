"""A base and adapters whose composition takes seconds, module by module, so that there is time to be killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import tiny

HIDDEN = 384
LAYERS = 8
RANK = 24
MODULES = tuple(
    f"encoder.layer.{layer}.attention.self.{name}" for layer in range(LAYERS) for name in ("query", "value")
)
BASE = "large"


def write_base(directory: Path) -> Path:
    """The base, each of its weights in a file of its own."""
    config = tiny.CONFIG | {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "intermediate_size": HIDDEN}
    draw = np.random.default_rng(0)
    tensors = {f"{module}.weight": draw.standard_normal((HIDDEN, HIDDEN), dtype=np.float32) for module in MODULES}
    tiny.write_base(directory, tensors, shards=len(tensors))
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def write_adapter(directory: Path, seed: int) -> Path:
    """An adapter of every module."""
    draw = np.random.default_rng(seed)
    tensors = {}
    for module in MODULES:
        key = f"base_model.model.{module}"
        tensors[f"{key}.lora_A.weight"] = draw.standard_normal((RANK, HIDDEN), dtype=np.float32)
        tensors[f"{key}.lora_B.weight"] = draw.standard_normal((HIDDEN, RANK), dtype=np.float32)
    return tiny.write_adapter(directory, seed, rank=RANK, tensors=tensors)


def spec(name: str = "merged", density: float = 0.5) -> dict[str, Any]:
    """TIES in delta space: every module is decomposed."""
    return {
        "name": name,
        "base": BASE,
        "method": "ties",
        "space": "delta",
        "rank": 8,
        "ties": {"preset": "paper", "density": density},
        "members": [{"ref": "one", "weight": 1.0}, {"ref": "two", "weight": 1.0}],
    }
