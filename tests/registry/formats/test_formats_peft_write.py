"""A written directory is the same adapter: to our reader, and to PEFT on the real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors.numpy import load_file
from transformers import AutoModel

from registry.errors import DigestMismatchError, RefusedError
from registry.formats import AdapterReading, read_adapter, write_peft
from schemas.adapter import AdapterManifest, FullReplacement, ScaleRule, make_scale
from schemas.base import TensorRef
from tests.registry.formats.builders import ADAPTERS, HIDDEN, MINILM, TARGETS, minilm, tiny_base, write_adapter

MODEL = "adapter_model.safetensors"
pytestmark = pytest.mark.filterwarnings(
    # PEFT 0.21 asks transformers 5.24 under the older name.
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
REAL = ("qa-lora", "docs-lora", "tone-rslora", "style-pattern")


class Bytes:
    """The tensors of an adapter directory by content."""

    def __init__(self, directory: Path, reading: AdapterReading) -> None:
        content = (directory / MODEL).read_bytes()
        self._data = {place.tensor: content[place.offset :][: place.length] for place in reading.locations}

    def __call__(self, ref: TensorRef) -> Iterator[bytes]:
        data = self._data[ref.tensor]
        yield from (data[start : start + 100] for start in range(0, len(data), 100))


def rewritten(source: Path, target: Path, base_name: str = "base") -> AdapterManifest:
    reading = read_adapter(source, tiny_base())
    write_peft(target, reading.manifest, Bytes(source, reading), base_name=base_name)
    return reading.manifest


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.lists(st.floats(-50, 50).map(lambda value: round(value, 3)), min_size=4, max_size=4),
    st.booleans(),
)
def test_reading_what_was_written_gives_the_same_adapter(
    tmp_path_factory: pytest.TempPathFactory, ranks: list[int], alphas: list[float], rslora: bool
) -> None:
    folder = tmp_path_factory.mktemp("round")
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for module, rank in zip(TARGETS, ranks, strict=True):
        arrays[f"base_model.model.{module}.lora_A.weight"] = random.standard_normal((rank, HIDDEN))
        arrays[f"base_model.model.{module}.lora_B.weight"] = random.standard_normal((HIDDEN, rank))
    patterns = {
        "rank_pattern": dict(zip(TARGETS, ranks, strict=True)),
        "alpha_pattern": dict(zip(TARGETS, alphas, strict=True)),
    }
    source = write_adapter(folder / "a", arrays, use_rslora=rslora, **patterns)
    manifest = rewritten(source, folder / "b")
    assert read_adapter(folder / "b", tiny_base()).manifest == manifest
    rewritten(folder / "b", folder / "c")
    for name in ("adapter_config.json", MODEL):
        assert (folder / "b" / name).read_bytes() == (folder / "c" / name).read_bytes()


@pytest.mark.parametrize("name", REAL)
def test_peft_loads_a_written_adapter_with_our_scales_and_the_original_delta(tmp_path: Path, name: str) -> None:
    source = ADAPTERS / name
    reading = read_adapter(source, minilm())
    write_peft(tmp_path / "out", reading.manifest, Bytes(source, reading), base_name=str(MINILM))
    assert read_adapter(tmp_path / "out", minilm()).manifest.digest == reading.manifest.digest
    model = AutoModel.from_pretrained(MINILM)
    plain = {key: value.clone() for key, value in model.state_dict().items()}
    ours, theirs = (scales_and_weights(path) for path in (tmp_path / "out", source))
    assert ours[0] == theirs[0]
    arrays = load_file(source / MODEL)
    for factor in reading.manifest.factors:
        assert ours[0][factor.module] == factor.scale.value
        a, b = (arrays[f"base_model.model.{factor.module}.lora_{side}.weight"].astype(np.float64) for side in "AB")
        key = f"{factor.module}.weight"
        assert torch.equal(ours[1][key], theirs[1][key])
        expected = plain[key].double() + factor.scale.value * torch.from_numpy(b @ a)
        assert torch.allclose(ours[1][key].double(), expected, rtol=1e-5, atol=1e-6)
        plain.pop(key)
    assert all(torch.equal(ours[1][key], value) for key, value in plain.items())


def scales_and_weights(directory: Path) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """What PEFT makes of a directory: the scale of each adapted module, and the merged model."""
    model = PeftModel.from_pretrained(AutoModel.from_pretrained(MINILM), str(directory))
    prefix = "base_model.model."
    scales = {
        key.removeprefix(prefix): float(module.scaling["default"])
        for key, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    return scales, model.merge_and_unload().state_dict()


def with_rules(manifest: AdapterManifest, rules: list[tuple[float, ScaleRule]]) -> AdapterManifest:
    changed = [
        factor.model_copy(update={"scale": make_scale(alpha, rule, factor.rank)})
        for factor, (alpha, rule) in zip(manifest.factors, rules, strict=True)
    ]
    return manifest.model_copy(update={"factors": tuple(changed)})


def test_mixed_and_explicit_scale_rules_are_written_as_one_with_the_same_values(tmp_path: Path) -> None:
    source = write_adapter(tmp_path / "a")
    reading = read_adapter(source, tiny_base())
    rules: list[tuple[float, ScaleRule]] = [
        (0.75, "explicit"), (8.0, "alpha_over_sqrt_r"), (3.0, "alpha_over_r"), (1.0, "explicit"),
    ]  # fmt: skip
    mixed = with_rules(reading.manifest, rules)
    write_peft(tmp_path / "b", mixed, Bytes(source, reading), base_name="base")
    found = read_adapter(tmp_path / "b", tiny_base()).manifest.factors
    for written, factor in zip(found, mixed.factors, strict=True):
        assert written.scale.rule == "alpha_over_r"
        assert written.scale.value == pytest.approx(factor.scale.value, rel=1e-15)


def test_damaged_bytes_are_not_written_as_a_tensor(tmp_path: Path) -> None:
    source = write_adapter(tmp_path / "a")
    reading = read_adapter(source, tiny_base())
    with pytest.raises(DigestMismatchError) as caught:
        write_peft(tmp_path / "b", reading.manifest, lambda _: bytes(4 * HIDDEN * 2), base_name="base")
    assert caught.value.code == "TENSOR_DIGEST_MISMATCH"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source = write_adapter(tmp_path / "a")
    with pytest.raises(FileExistsError):
        rewritten(source, source)


def test_what_plain_peft_cannot_express_is_refused(tmp_path: Path) -> None:
    source = write_adapter(tmp_path / "a")
    reading = read_adapter(source, tiny_base())
    head = FullReplacement(name="classifier.weight", value=reading.manifest.factors[0].a)
    for update in ({"full_replacements": (head,)}, {"payload": "native"}, {"initializer": "pissa"}):
        with pytest.raises(RefusedError) as caught:
            write_peft(
                tmp_path / "b", reading.manifest.model_copy(update=update), Bytes(source, reading), base_name="base"
            )
        assert caught.value.code == "ADAPTER_NOT_PEFT"
    assert not (tmp_path / "b").exists()
