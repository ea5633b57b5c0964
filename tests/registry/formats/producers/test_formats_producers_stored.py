"""Registered once, a foreign adapter needs its directory no more: the stored bytes are its function."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from registry.service import add
from registry.service.context import Context
from tests.registry.formats.producers.bases import base_weights, write_base
from tests.registry.formats.producers.described import close
from tests.support import stored

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("name", ["mlx-llama-lora", "torchtune-llama-lora", "kohya-bert-lycoris"])
def test_the_stored_tensors_of_a_foreign_adapter_are_those_its_producer_merges(
    name: str, context: Context, tmp_path: Path
) -> None:
    model_type = name.split("-")[1]
    add.add_base(context, write_base(tmp_path / "base", model_type), "base")
    directory = tmp_path / "adapter"
    shutil.copytree(DATA / name, directory)
    expected = load_file(directory / "fused" / "weights.safetensors")
    added = add.add_adapter(context, directory, "base", "adapter")
    shutil.rmtree(directory)
    factors = stored.arrays_of(context, stored.load(context, added.digest))
    assert factors
    weights = base_weights(model_type)
    for module, factor in factors.items():
        merged = weights[f"{module}.weight"] + factor.scale.value * (factor.b.astype("f8") @ factor.a.astype("f8"))
        assert close(merged, expected[f"{module}.weight"]), module
