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
from transformers import AutoModel, AutoModelForSequenceClassification

from registry.errors import DigestMismatchError, RefusedError
from registry.formats import AdapterReading, read_adapter, write_peft
from registry.formats.peft.expressible import peft_problems
from registry.formats.peft.write import initial_rank
from schemas.adapter import AdapterManifest, ScaleRule, make_scale
from schemas.base import TensorRef
from tests.registry.formats.builders import ADAPTERS, HIDDEN, MINILM, TARGETS, minilm, tiny_base, write_adapter

MODEL = "adapter_model.safetensors"
pytestmark = pytest.mark.filterwarnings(
    # PEFT 0.21 asks transformers 5.24 under the older name.
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning",
    # It says so of every AdaLoRA adapter, its own among them.
    "ignore:The following rank_pattern keys did not match:RuntimeWarning",
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
    write_peft(target, reading.manifest, tiny_base(), Bytes(source, reading), base_name=base_name)
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
    write_peft(tmp_path / "out", reading.manifest, minilm(), Bytes(source, reading), base_name=str(MINILM))
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
    write_peft(tmp_path / "b", mixed, tiny_base(), Bytes(source, reading), base_name="base")
    found = read_adapter(tmp_path / "b", tiny_base()).manifest.factors
    for written, factor in zip(found, mixed.factors, strict=True):
        assert written.scale.rule == "alpha_over_r"
        assert written.scale.value == pytest.approx(factor.scale.value, rel=1e-15)


def test_damaged_bytes_are_not_written_as_a_tensor(tmp_path: Path) -> None:
    source = write_adapter(tmp_path / "a")
    reading = read_adapter(source, tiny_base())
    with pytest.raises(DigestMismatchError) as caught:
        write_peft(tmp_path / "b", reading.manifest, tiny_base(), lambda _: bytes(4 * HIDDEN * 2), base_name="base")
    assert caught.value.code == "TENSOR_DIGEST_MISMATCH"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source = write_adapter(tmp_path / "a")
    with pytest.raises(FileExistsError):
        rewritten(source, source)


@pytest.mark.parametrize(
    ("update", "path"),
    [
        ({"payload": "native", "initializer": "pissa"}, ("payload",)),
        ({"training": {"group_size": "16"}}, ("training", "group_size")),
    ],
)
def test_what_peft_cannot_express_is_refused_by_name(
    tmp_path: Path, update: dict[str, Any], path: tuple[str, ...]
) -> None:
    source = write_adapter(tmp_path / "a")
    reading = read_adapter(source, tiny_base())
    changed = reading.manifest.model_copy(update=update)
    with pytest.raises(RefusedError) as caught:
        write_peft(tmp_path / "b", changed, tiny_base(), Bytes(source, reading), base_name="base")
    assert [(problem.code, problem.path) for problem in caught.value.problems] == [("ADAPTER_NOT_PEFT", path)]
    assert not (tmp_path / "b").exists()


def changed_factors(manifest: AdapterManifest, count: int, **update: Any) -> AdapterManifest:
    """The manifest with the first so many factors changed, past the checks of a single factor."""
    changed = [factor.model_copy(update=update) for factor in manifest.factors[:count]]
    return manifest.model_copy(update={"factors": (*changed, *manifest.factors[count:])})


@pytest.mark.parametrize(
    ("count", "update", "path"),
    [
        (1, {"expert": 0}, ("factors", TARGETS[0])),
        (4, {"extra": {"diag": None}}, ("factors", TARGETS[0], "extra", "diag")),
        (1, {"extra": {"magnitude": None}}, ("factors", "extra", "magnitude")),
        (4, {"extra": {"E": None, "magnitude": None}}, ("factors", "extra")),
    ],
    ids=["an expert", "KaSA", "DoRA on one module", "triplets with a magnitude"],
)
def test_factors_that_peft_has_no_flag_for_are_refused_by_name(
    tmp_path: Path, count: int, update: dict[str, Any], path: tuple[str, ...]
) -> None:
    source = write_adapter(tmp_path / "a")
    reading = read_adapter(source, tiny_base())
    changed = changed_factors(reading.manifest, count, **update)
    with pytest.raises(RefusedError) as caught:
        write_peft(tmp_path / "b", changed, tiny_base(), Bytes(source, reading), base_name="base")
    assert caught.value.problems[0].path == path
    assert {problem.code for problem in caught.value.problems} == {"ADAPTER_NOT_PEFT"}


@pytest.mark.parametrize(
    ("count", "update", "expected"),
    [
        (1, {"rank": 3}, "one rank and alpha beside stacked parameters"),
        (2, {}, "one stacked parameter of a module"),
    ],
)
def test_stacked_parameters_whose_wrappers_peft_would_mix_up_are_refused(
    tmp_path: Path, count: int, update: dict[str, Any], expected: str
) -> None:
    """PEFT nests the wrappers of a module's parameters in the module's order, and its patterns name modules."""
    reading = read_adapter(write_adapter(tmp_path / "a"), tiny_base())
    stacked = changed_factors(reading.manifest, count, order="B[o,r,e]A[e,r,i]", **update)
    found = peft_problems(stacked, "bert")
    assert [(problem.code, problem.path, problem.expected) for problem in found] == [
        ("ADAPTER_NOT_PEFT", ("factors", TARGETS[0].rpartition(".")[0]), expected)
    ]


HEADED = ("minilm-lora-rankpattern", "minilm-dora-rslora", "minilm-adalora")


@pytest.mark.parametrize("name", HEADED)
def test_peft_gives_the_same_outputs_from_a_written_adapter_with_a_head(tmp_path: Path, name: str) -> None:
    source = ADAPTERS / name
    reading = read_adapter(source, minilm())
    write_peft(tmp_path / "out", reading.manifest, minilm(), Bytes(source, reading), base_name=str(MINILM))
    assert read_adapter(tmp_path / "out", minilm()).manifest.digest == reading.manifest.digest
    ours, theirs = (classifier(path) for path in (tmp_path / "out", source))
    tokens = torch.arange(40).reshape(2, 20) * 37 % 30000
    with torch.no_grad():
        assert torch.equal(ours(input_ids=tokens).logits, theirs(input_ids=tokens).logits)
    written, given = (
        load_file(path / MODEL)["base_model.model.classifier.weight"] for path in (tmp_path / "out", source)
    )
    np.testing.assert_array_equal(written, given)


def classifier(directory: Path) -> torch.nn.Module:
    """MiniLM with three classes and an adapter."""
    torch.manual_seed(0)
    base = AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=3)
    model: torch.nn.Module = PeftModel.from_pretrained(base, str(directory))
    model.eval()
    return model


@pytest.mark.parametrize(
    ("alpha", "rank", "least", "expected"),
    [(16.0, 8, 5, (8, 16)), (32.0, 12, 12, (12, 32)), (2.5, 3, 2, None)],
)
def test_the_initial_rank_is_found_again_from_the_scale(
    alpha: float, rank: int, least: int, expected: tuple[int, int] | None
) -> None:
    found = initial_rank(alpha / (rank + 1e-5), least)
    assert expected in (None, found)
    assert found[0] >= least
    assert found[1] / (found[0] + 1e-5) == pytest.approx(alpha / (rank + 1e-5), rel=1e-12)
