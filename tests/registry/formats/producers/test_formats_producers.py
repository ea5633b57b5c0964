"""Directories that producers' own libraries wrote: our weights after the adapter are theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from registry.errors import RefusedError
from tests.registry.formats.producers.described import Described, close, read
from tests.registry.formats.producers.grammars import EXPECTED, routed

DATA = Path(__file__).parent / "data"
NO_PAIRS = {"kohya-bert-loha": "LoHa", "kohya-bert-lokr": "LoKr"}
CASES = {path.name: path.name.split("-")[1] for path in sorted(DATA.iterdir()) if path.name not in NO_PAIRS}


@pytest.mark.parametrize("name", CASES)
def test_the_weights_after_an_adapter_are_those_its_producer_merges(name: str, tmp_path: Path) -> None:
    model_type = CASES[name]
    reading = read(DATA / name, model_type, tmp_path)
    after = Described(DATA / name, reading, model_type).weights_after()
    expected = load_file(DATA / name / "fused" / "weights.safetensors")
    base = Described(DATA / name, reading, model_type).weights
    for key, weight in expected.items():
        assert close(after.get(key, base[key]), weight), key
    assert after.keys() <= expected.keys()


@pytest.mark.parametrize("name", NO_PAIRS)
def test_what_is_no_pair_of_factors_is_refused_once_by_its_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        read(DATA / name, name.split("-")[1], tmp_path)
    (problem,) = caught.value.problems
    assert problem.code == "KEY_UNSUPPORTED"
    assert problem.observed.startswith(NO_PAIRS[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_the_delta_of_a_rebuilt_directory_is_its_producers_formula(name: str, tmp_path: Path) -> None:
    model_type, write = EXPECTED[name]
    directory = tmp_path / "adapter"
    directory.mkdir()
    expected = write(directory)
    reading = read(directory, model_type, tmp_path)
    described = Described(directory, reading, model_type)
    found = {factor.module: described.delta(factor) for factor in reading.manifest.factors}
    assert found.keys() == expected.keys()
    for module, delta in expected.items():
        assert close(found[module], delta), module


@pytest.mark.parametrize(("shared", "family"), [(True, "hydralora"), (False, "loramoe")])
def test_experts_are_factors_of_their_own_and_a_shared_a_is_one_tensor(
    shared: bool, family: str, tmp_path: Path
) -> None:
    directory = tmp_path / "adapter"
    directory.mkdir()
    expected = routed(directory, shared=shared)
    reading = read(directory, "llama", tmp_path)
    described = Described(directory, reading, "llama")
    factors = reading.manifest.factors
    assert reading.manifest.family == family
    assert {(factor.module, factor.expert) for factor in factors} == expected.keys()
    for factor in factors:
        assert factor.expert is not None
        assert close(described.delta(factor), expected[factor.module, factor.expert])
    inputs = {factor.a.tensor for factor in factors}
    assert len(inputs) == (len(factors) // 3 if shared else len(factors))
