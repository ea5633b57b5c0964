"""An adapter is its factors on its base: what does not change identity, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from registry.errors import RefusedError
from registry.formats import AdapterReading, read_adapter, read_base
from schemas.adapter import FactorManifest
from schemas.digests import Digest, blob_digest, tensor_digest
from tests.registry.formats.builders import (
    ADAPTERS,
    HIDDEN,
    MINILM,
    QUERY,
    TARGETS,
    Arrays,
    factors,
    minilm,
    tiny_base,
    write_adapter,
    write_base,
)

KEY = f"base_model.model.{QUERY}"
MODEL = "adapter_model.safetensors"


def read(directory: Path) -> AdapterReading:
    return read_adapter(directory, tiny_base())


def digest_of(directory: Path) -> Digest:
    return read(directory).manifest.digest


def refused(directory: Path) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(RefusedError) as caught:
        read(directory)
    for problem in caught.value.problems:
        assert problem.expected
        assert problem.observed
        assert problem.hint
    return {problem.path: problem.code for problem in caught.value.problems}


def changed(change: Callable[[Arrays], object]) -> Arrays:
    arrays = factors()
    change(arrays)
    return arrays


def by_module(reading: AdapterReading) -> dict[str, FactorManifest]:
    return {factor.module: factor for factor in reading.manifest.factors}


# Real adapters


@pytest.mark.parametrize(
    ("name", "modules", "rule"),
    [
        ("qa-lora", 12, "alpha_over_r"),
        ("docs-lora", 6, "alpha_over_r"),
        ("tone-rslora", 18, "alpha_over_sqrt_r"),
        ("style-pattern", 18, "alpha_over_r"),
    ],
)
def test_a_real_adapter_is_read_with_its_tensors_ranks_and_scales(name: str, modules: int, rule: str) -> None:
    reading = read_adapter(ADAPTERS / name, minilm())
    config = json.loads((ADAPTERS / name / "adapter_config.json").read_text())
    arrays = load_file(ADAPTERS / name / "adapter_model.safetensors")
    assert len(reading.manifest.factors) == modules == len(arrays) // 2
    assert reading.manifest.base == minilm().digest
    for factor in reading.manifest.factors:
        a, b = (arrays[f"base_model.model.{factor.module}.lora_{side}.weight"] for side in "AB")
        assert factor.a.tensor == tensor_digest("F32", a.shape, a.tobytes())
        assert factor.b.tensor == tensor_digest("F32", b.shape, b.tobytes())
        divisor = a.shape[0] if rule == "alpha_over_r" else np.sqrt(a.shape[0])
        assert factor.scale.rule == rule
        if not config["alpha_pattern"]:
            assert factor.scale.value == pytest.approx(config["lora_alpha"] / divisor, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "family", "initializer", "payload", "extra"),
    [
        ("minilm-lora-rankpattern", "lora", "none", "portable", set()),
        ("minilm-dora-rslora", "dora", "none", "portable", {"magnitude"}),
        ("minilm-pissa-raw", "pissa", "pissa", "native", set()),
        ("minilm-pissa-init", "lora", "none", "portable", set()),
        ("minilm-adalora", "adalora", "none", "portable", {"E"}),
    ],
)
def test_a_real_adapter_of_another_kind_is_read_as_what_it_is(
    name: str, family: str, initializer: str, payload: str, extra: set[str]
) -> None:
    adapter = read_adapter(ADAPTERS / name, minilm()).manifest
    assert (adapter.family, adapter.initializer, adapter.payload) == (family, initializer, payload)
    assert all(set(factor.extra) == extra and factor.source == family for factor in adapter.factors)
    heads = load_file(ADAPTERS / name / MODEL)
    for replacement in adapter.full_replacements:
        head = heads[f"base_model.model.{replacement.name}"]
        assert replacement.value.tensor == tensor_digest("F32", head.shape, head.tobytes())
    assert [item.name for item in adapter.full_replacements] == ["classifier.bias", "classifier.weight"]


def test_locations_lead_to_the_bytes_of_each_factor(tmp_path: Path) -> None:
    directory = write_adapter(tmp_path)
    content = (directory / "adapter_model.safetensors").read_bytes()
    for place in read(directory).locations:
        assert place.file == blob_digest(content)
        data = content[place.offset : place.offset + place.length]
        assert tensor_digest(place.dtype, place.shape, data) == place.tensor


# Identity


@pytest.mark.parametrize("slot", ["default", "my-adapter", "weight"])
def test_the_slot_name_is_no_identity(tmp_path: Path, slot: str) -> None:
    plain, named = write_adapter(tmp_path / "a"), write_adapter(tmp_path / "b", factors(slot=slot))
    assert digest_of(named) == digest_of(plain)
    assert read(named).notes["slot"] == slot


def test_the_order_of_tensors_in_the_file_is_no_identity(tmp_path: Path) -> None:
    plain = write_adapter(tmp_path / "a")
    other = write_adapter(tmp_path / "b")
    path = other / "adapter_model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    moved, blocks, offset = {}, [], 0
    for name in sorted(header, reverse=True):
        start, end = header[name]["data_offsets"]
        moved[name] = header[name] | {"data_offsets": [offset, offset + end - start]}
        blocks.append(data[start:end])
        offset += end - start
    text = json.dumps(moved).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blocks))
    assert path.read_bytes() != content
    assert digest_of(other) == digest_of(plain)


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": ["value", "query"]},
        {"target_modules": list(TARGETS)},
        {"target_modules": r".*\.(query|value)"},
        {"target_modules": "all-linear", "exclude_modules": ["dense", "key"]},
        {"rank_pattern": {"no_such_module": 7}, "alpha_pattern": {"query": 8, "key": 3}},
        {"rank_pattern": {"query": 2}, "r": 2},
        {"alpha_pattern": {r".*(query|value)": 8}, "lora_alpha": 1},
        {"lora_dropout": 0.3, "task_type": "SEQ_CLS", "revision": "abc", "base_model_name_or_path": "elsewhere"},
        {"lora_alpha": 8.0, "inference_mode": True, "peft_version": "0.9.0"},
    ],
)
def test_config_that_does_not_change_the_function_is_no_identity(tmp_path: Path, config: dict[str, Any]) -> None:
    assert digest_of(write_adapter(tmp_path / "b", **config)) == digest_of(write_adapter(tmp_path / "a"))


@pytest.mark.parametrize("config", [{"lora_alpha": 4}, {"use_rslora": True}, {"alpha_pattern": {"query": 4}}])
def test_another_scale_is_another_adapter(tmp_path: Path, config: dict[str, Any]) -> None:
    assert digest_of(write_adapter(tmp_path / "b", **config)) != digest_of(write_adapter(tmp_path / "a"))


def test_patterns_give_each_module_its_own_rank_and_scale(tmp_path: Path) -> None:
    arrays = factors(TARGETS[1:]) | factors(TARGETS[:1], rank=4)
    patterns = {"rank_pattern": {QUERY: 4}, "alpha_pattern": {"value": 6}}
    found = by_module(read(write_adapter(tmp_path, arrays, **patterns)))
    assert (found[QUERY].rank, found[QUERY].scale.value) == (4, 8 / 4)
    assert (found[TARGETS[1]].rank, found[TARGETS[1]].scale.value) == (2, 6 / 2)


def test_the_prefix_of_a_head_model_is_removed_by_a_named_rule(tmp_path: Path) -> None:
    wrapped = write_adapter(tmp_path / "b", factors(prefix="base_model.model.bert."))
    assert digest_of(wrapped) == digest_of(write_adapter(tmp_path / "a"))
    assert read(wrapped).notes["wrapper_rule"] == "remove_bert_prefix"
    assert read(tmp_path / "a").notes["wrapper_rule"] == "none"


def test_patterns_see_the_names_of_the_wrapped_model(tmp_path: Path) -> None:
    prefixed = factors(prefix="base_model.model.bert.")
    found = by_module(read(write_adapter(tmp_path, prefixed, alpha_pattern={r"^bert\.encoder.*query": 6})))
    assert found[QUERY].scale.value == 6 / 2


def test_a_prefix_on_some_keys_only_is_refused(tmp_path: Path) -> None:
    mixed = factors(TARGETS[:2]) | factors(TARGETS[2:], prefix="base_model.model.bert.")
    assert "TARGET_MODULE_MISSING" in refused(write_adapter(tmp_path, mixed)).values()


def test_layers_to_transform_decides_which_modules_are_complete(tmp_path: Path) -> None:
    reading = read(write_adapter(tmp_path, factors(TARGETS[2:]), layers_to_transform=[1]))
    assert [factor.module for factor in reading.manifest.factors] == sorted(TARGETS[2:])


# Conditions


def test_every_b_zero_is_a_condition(tmp_path: Path) -> None:
    zero = {name: value * (0 if "lora_B" in name else 1) for name, value in factors().items()}
    assert read(write_adapter(tmp_path / "a", zero)).notes["conditions"] == ("B_ALL_ZERO",)
    zero[f"{KEY}.lora_B.weight"][0, 0] = 1e-30
    assert read(write_adapter(tmp_path / "b", zero)).notes["conditions"] == ()


# Refusals


def drop(name: str) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.pop(name)


def put(name: str, value: Any) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.update({name: np.asarray(value)})


F32 = np.float32


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (put(f"{KEY}.lora_A.weight", np.ones((HIDDEN, 2), F32)), "FACTOR_TRANSPOSED"),
        (put(f"{KEY}.lora_B.weight", np.ones((2, HIDDEN), F32)), "FACTOR_TRANSPOSED"),
        (put(f"{KEY}.lora_A.weight", np.ones((2, HIDDEN + 1), F32)), "FACTOR_SHAPE"),
        (put(f"{KEY}.lora_B.weight", np.ones((HIDDEN - 1, 2), F32)), "FACTOR_SHAPE"),
        (put(f"{KEY}.lora_A.weight", np.ones((3, HIDDEN), F32)), "RANK_MISMATCH"),
        (put(f"{KEY}.lora_B.weight", np.ones((HIDDEN, 3), F32)), "RANK_MISMATCH"),
        (put(f"{KEY}.lora_A.weight", np.ones(HIDDEN, F32)), "FACTOR_NOT_MATRIX"),
        (put(f"{KEY}.lora_A.weight", np.ones((2, HIDDEN, 1, 1), F32)), "FACTOR_NOT_MATRIX"),
        (put(f"{KEY}.lora_A.weight", np.ones((0, HIDDEN), F32)), "FACTOR_EMPTY"),
        (put(f"{KEY}.lora_A.weight", np.ones((2, HIDDEN), np.int8)), "FACTOR_DTYPE"),
        (put(f"{KEY}.lora_B.weight", np.ones((HIDDEN, 2), np.float16)), "FACTOR_DTYPE_MISMATCH"),
        (put(f"{KEY}.lora_A.weight", [[1, np.nan] * 3] * 2), "FACTOR_DTYPE_MISMATCH"),
        (put(f"{KEY}.lora_A.weight", np.full((2, HIDDEN), np.inf, F32)), "NON_FINITE"),
        (drop(f"{KEY}.lora_A.weight"), "FACTOR_UNPAIRED"),
        (drop(f"{KEY}.lora_B.weight"), "FACTOR_UNPAIRED"),
        (put(f"{KEY}.lora_C.weight", [[1.0]]), "KEY_UNKNOWN"),
        (put(f"{QUERY}.lora_A.weight", [[1.0]]), "KEY_UNKNOWN"),
        (put("base_model.model.lora_A.weight", [[1.0]]), "KEY_UNKNOWN"),
        (put(f"{KEY}.lora_magnitude_vector", np.ones(HIDDEN, F32)), "FACTOR_EXTRA_UNDECLARED"),
        (put(f"{KEY}.lora_B.bias", np.ones(HIDDEN, F32)), "FACTOR_EXTRA_UNDECLARED"),
        (put(f"{KEY}.lora_E", [[1.0]]), "KEY_UNSUPPORTED"),
        (put(f"{KEY}.lora_A0.weight", [[1.0]]), "KEY_UNSUPPORTED"),
        (put("base_model.model.embeddings.word_embeddings.lora_embedding_A", [[1.0]]), "FACTOR_UNPAIRED"),
        (put("base_model.model.classifier.weight", [[1.0]]), "KEY_UNSUPPORTED"),
        (put(f"{KEY}.lora_A.other.weight", np.ones((2, HIDDEN), F32)), "SLOTS_MIXED"),
    ],
)
def test_a_damaged_pair_or_key_is_refused_with_its_own_code(
    tmp_path: Path, change: Callable[[Arrays], object], code: str
) -> None:
    found = refused(write_adapter(tmp_path, changed(change)))
    assert set(found.values()) == {code}
    assert {path[0] for path in found} == {MODEL}


def test_a_nan_is_named_with_tensor_and_first_flat_index(tmp_path: Path) -> None:
    arrays = factors()
    arrays[f"{KEY}.lora_B.weight"][3, 1] = np.nan
    arrays[f"{KEY}.lora_B.weight"][5, 0] = np.nan
    with pytest.raises(RefusedError) as caught:
        read(write_adapter(tmp_path, arrays))
    (problem,) = caught.value.problems
    assert problem.path == (MODEL, f"{KEY}.lora_B.weight")
    assert problem.observed.endswith("flat index 7")


def test_a_module_the_base_lacks_is_refused_by_name(tmp_path: Path) -> None:
    extra = "encoder.layer.7.attention.self.query"
    found = refused(write_adapter(tmp_path, factors() | factors((extra,))))
    assert found == {(MODEL, extra): "TARGET_MODULE_MISSING"}


def test_a_targeted_module_without_factors_is_refused_by_name(tmp_path: Path) -> None:
    found = refused(write_adapter(tmp_path, factors(TARGETS[:-1])))
    assert found == {("adapter_config.json", "target_modules", TARGETS[-1]): "MODULES_MISSING"}


def test_a_module_that_is_not_targeted_is_refused_by_name(tmp_path: Path) -> None:
    found = refused(write_adapter(tmp_path, target_modules=["query"]))
    assert found == {(MODEL, module): "MODULE_NOT_TARGETED" for module in TARGETS if module.endswith("value")}


def test_excluded_modules_with_factors_are_refused(tmp_path: Path) -> None:
    found = refused(write_adapter(tmp_path, exclude_modules=[QUERY]))
    assert found == {(MODEL, QUERY): "MODULE_NOT_TARGETED"}


def test_overlapping_patterns_with_other_values_are_refused_per_module(tmp_path: Path) -> None:
    found = refused(write_adapter(tmp_path, alpha_pattern={"query": 4, r".*layer\.0\..*": 30}))
    assert found == {("adapter_config.json", "alpha_pattern", QUERY): "PATTERN_OVERLAP"}


def test_a_rank_the_tensors_do_not_have_is_refused_for_every_module(tmp_path: Path) -> None:
    found = refused(write_adapter(tmp_path, r=4))
    assert found == {(MODEL, f"base_model.model.{module}.lora_A.weight"): "RANK_MISMATCH" for module in TARGETS}


def test_all_that_is_wrong_is_reported_at_once(tmp_path: Path) -> None:
    arrays = factors() | factors(("nowhere",))
    arrays[f"{KEY}.lora_A.weight"] = np.ones((HIDDEN, 2), F32)
    found = refused(write_adapter(tmp_path, arrays, target_modules=["query", "value", "key"]))
    assert sorted(found.values()) == [
        "FACTOR_TRANSPOSED",
        "MODULES_MISSING",
        "MODULES_MISSING",
        "TARGET_MODULE_MISSING",
    ]


def test_an_adapter_without_tensors_is_refused(tmp_path: Path) -> None:
    assert "ADAPTER_EMPTY" in refused(write_adapter(tmp_path, {}, target_modules=[])).values()


def test_a_base_whose_shapes_were_never_read_is_refused(tmp_path: Path) -> None:
    declared = read_base(write_base(tmp_path / "base"), evidence="declared").manifest
    with pytest.raises(RefusedError) as caught:
        read_adapter(write_adapter(tmp_path / "a"), declared)
    assert caught.value.code == "BASE_SHAPES_UNKNOWN"


def test_a_structural_base_is_enough_to_check_an_adapter() -> None:
    structural = read_base(MINILM, evidence="structural").manifest
    reading = read_adapter(ADAPTERS / "qa-lora", structural)
    assert reading.manifest.base == structural.digest
    assert reading.manifest.digest != read_adapter(ADAPTERS / "qa-lora", minilm()).manifest.digest


# Random damage

NAMES = st.sampled_from([f"{KEY}.lora_A.weight", f"{KEY}.lora_A.x.weight", "é", "a..lora_A.weight", f"{KEY}.lora_E"])
VALUES = st.sampled_from(
    [None, True, 0, -1, 3, 2**62, 0.5, "", "x", "(", [], ["query"], [1], {}, {"query": 2}, {"(": 1}]
)
FIELD = st.sampled_from(
    [
        "r",
        "lora_alpha",
        "use_rslora",
        "target_modules",
        "exclude_modules",
        "rank_pattern",
        "bias",
        "alpha_pattern",
        "layers_to_transform",
        "layers_pattern",
        "peft_type",
        "init_lora_weights",
        "z",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(FIELD, VALUES, max_size=3), st.none() | NAMES, st.booleans())
def test_damaged_adapters_are_read_or_refused_never_anything_else(
    tmp_path: Path, config: dict[str, Any], name: str | None, dropped: bool
) -> None:
    arrays = factors()
    if dropped:
        arrays.pop(f"{KEY}.lora_A.weight")
    if name is not None:
        arrays[name] = np.ones((2, HIDDEN), F32)
    write_adapter(tmp_path, arrays, **config)
    try:
        reading = read(tmp_path)
    except RefusedError:
        return
    assert {factor.module for factor in reading.manifest.factors} == set(TARGETS)


def test_a_file_written_twice_has_one_digest(tmp_path: Path) -> None:
    arrays = load_file(ADAPTERS / "qa-lora" / MODEL)
    for name in ("adapter_config.json",):
        (tmp_path / name).write_bytes((ADAPTERS / "qa-lora" / name).read_bytes())
    save_file(dict(sorted(arrays.items(), reverse=True)), tmp_path / MODEL, metadata={"saved": "again"})
    again, first = (read_adapter(path, minilm()) for path in (tmp_path, ADAPTERS / "qa-lora"))
    assert again.manifest.canonical() == first.manifest.canonical()
    assert [file.digests for file in again.files] != [file.digests for file in first.files]
