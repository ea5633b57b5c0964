"""The way of a case through the product: PEFT directories in, a composition, a PEFT directory out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from registry.service import add, admit, export, specs
from registry.service.context import Context
from registry.service.export import Form
from registry.service.results import Added, Admitted
from schemas.canonical import JsonObject
from tests.support import tiny

ROOT: Final = "base_model.model."
WEIGHTS: Final = "adapter_model.safetensors"
QUERY: Final = tiny.MODULES[0]
ONE_MODULE: Final[Mapping[str, Any]] = {"target_modules": ["query"], "layers_to_transform": [0]}
"""A configuration that adapts `QUERY` alone."""

Array = NDArray[Any]
Deltas = dict[str, NDArray[np.float64]]


def unit(index: int) -> dict[str, Array]:
    """Rank-1 factors on `QUERY`: ``A = e_index^T``, ``B = e_index``."""
    a, b = np.zeros((1, tiny.HIDDEN), np.float32), np.zeros((tiny.HIDDEN, 1), np.float32)
    a[0, index] = b[index, 0] = 1.0
    return pair(QUERY, a, b)


def pair(module: str, a: Array, b: Array) -> dict[str, Array]:
    """PEFT's tensors of one module."""
    key = f"{ROOT}{module}"
    return {f"{key}.lora_A.weight": a, f"{key}.lora_B.weight": b}


def register(context: Context, base: Path, folder: Path, name: str, seed: int = 1, **adapter: Any) -> Added:
    """Write an adapter into `folder` under its name and register it; the base too, where it is new."""
    add.add_base(context, base, "tiny")
    directory = folder / name
    if not directory.exists():
        tiny.write_adapter(directory, seed, **adapter)
    return add.add_adapter(context, directory, "tiny", name)


def spec(members: Mapping[str, float], method: str = "cat", space: str = "delta", **fields: Any) -> JsonObject:
    """A spec named `merged`."""
    listed = [{"ref": ref, "weight": weight} for ref, weight in members.items()]
    return {"name": "merged", "base": "tiny", "method": method, "space": space, "members": listed, **fields}


def ask(context: Context, document: JsonObject) -> Admitted:
    """Admit a spec."""
    return admit.admit(context, specs.spec_from(document))


def merge(
    context: Context, out: Path, members: Mapping[str, float], method: str = "cat", space: str = "delta", **fields: Any
) -> Deltas:
    """Admit, export to `out` and read the deltas of the exported directory."""
    answer = ask(context, spec(members, method, space, **fields))
    assert answer.composition is not None, answer.decision.findings
    export.export(context, answer.composition, out, Form("tiny"))
    return deltas(out)


def deltas(directory: Path) -> Deltas:
    """``B A`` of every module of an exported composition, whose scales are all 1."""
    config = json.loads((directory / "adapter_config.json").read_text(encoding="utf-8"))
    assert (config["lora_alpha"], config["alpha_pattern"]) == (config["r"], config["rank_pattern"])
    assert not config["use_rslora"]
    tensors = {key: array.astype(np.float64) for key, array in load_file(directory / WEIGHTS).items()}
    names = {key.removeprefix(ROOT).partition(".lora_")[0] for key in tensors if ".lora_" in key}
    return {name: tensors[f"{ROOT}{name}.lora_B.weight"] @ tensors[f"{ROOT}{name}.lora_A.weight"] for name in names}


def close(found: NDArray[np.float64], expected: NDArray[np.float64], tolerance: float = 1e-6) -> None:
    """Demand a relative Frobenius distance within the tolerance."""
    assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def codes(answer: Admitted) -> set[str]:
    """The codes of all refusals."""
    return {finding.code for finding in answer.decision.refusals}


def total(answer: Admitted) -> JsonObject:
    """The ledger's total."""
    assert answer.measurement is not None
    found = answer.measurement["total"]
    assert isinstance(found, dict)
    return found


def contents(directory: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
