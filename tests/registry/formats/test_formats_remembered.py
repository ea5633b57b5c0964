"""What is remembered from one directory to the next never makes another directory's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.errors import RefusedError
from registry.formats import read_adapter, read_base
from registry.formats.remembered import Remembered
from tests.support import tiny


def test_the_oldest_result_makes_room() -> None:
    results = Remembered[str, int](most=2)
    for number, key in enumerate("abc"):
        assert results.put(key, number) == number
    assert [results.get(key) for key in "abc"] == [None, 1, 2]


def test_directories_of_one_header_differ_in_tensors_and_config_and_each_base_is_asked_anew(tmp_path: Path) -> None:
    base = read_base(tiny.write_base(tmp_path / "base")).manifest
    first = read_adapter(tiny.write_adapter(tmp_path / "first", 1), base).manifest
    reading = read_adapter(tiny.write_adapter(tmp_path / "other", 2), base)
    other = reading.manifest
    assert (reading.digest, reading.written.data) == (other.digest, other.canonical())
    tensors = [ref.tensor for factor in other.factors for ref in (factor.a, factor.b)]
    assert reading.written.tensors == {*tensors} == {place.tensor for place in reading.locations}
    doubled = read_adapter(tiny.write_adapter(tmp_path / "doubled", 1, lora_alpha=8), base).manifest
    assert [factor.module for factor in other.factors] == [factor.module for factor in first.factors]
    assert all(one.a.tensor != two.a.tensor for one, two in zip(first.factors, other.factors, strict=True))
    assert {factor.scale.value for factor in first.factors} == {2.0}
    assert {factor.scale.value for factor in doubled.factors} == {4.0}
    narrow = {name: tensor for name, tensor in tiny.base_tensors().items() if "layer.1" not in name}
    lacking = read_base(tiny.write_base(tmp_path / "lacking", narrow)).manifest
    with pytest.raises(RefusedError) as caught:
        read_adapter(tmp_path / "first", lacking)
    assert caught.value.code == "TARGET_MODULE_MISSING"
    assert read_adapter(tmp_path / "first", base).manifest == first
