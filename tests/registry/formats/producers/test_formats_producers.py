"""Directories that producers' own libraries wrote: our delta is theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.registry.formats.producers.described import Described, close, read

DATA = Path(__file__).parent / "data"
CASES = {path.name: path.name.split("-")[1] for path in sorted(DATA.iterdir())}


@pytest.mark.parametrize("name", CASES)
def test_the_weights_after_an_adapter_are_those_its_producer_merges(name: str, tmp_path: Path) -> None:
    model_type = CASES[name]
    reading = read(DATA / name, model_type, tmp_path)
    found = Described(DATA / name, reading, model_type)
    after = found.weights_after()
    expected = load_file(DATA / name / "fused" / "weights.safetensors")
    print(reading.notes, sorted(after)[:3], sorted(expected)[:3])
    for key in after:
        assert close(after[key], expected[key]), key
