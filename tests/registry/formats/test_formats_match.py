"""Names by named rules, replaced tensors, rows of a table, and factors that could be of two parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from registry.errors import RefusedError
from registry.formats import read_adapter
from registry.formats.snapshot import Repetition
from registry.formats.wrappers import find_naming
from schemas.digests import tensor_digest
from tests.registry.formats.builders import HIDDEN, QUERY, TARGETS, factors, tiny_base, write_adapter

ROOT = "base_model.model."
TABLE = "embeddings.word_embeddings"


def codes(directory: Path) -> set[str]:
    with pytest.raises(RefusedError) as caught:
        read_adapter(directory, tiny_base())
    return {problem.code for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("names", "known", "model_type", "rule"),
    [
        (["encoder.a"], ["encoder.a"], "bert", "none"),
        (["bert.encoder.a"], ["encoder.a"], "bert", "remove_bert_prefix"),
        (["encoder.a"], ["bert.encoder.a"], "bert", "add_bert_prefix"),
        (["language_model.model.layers.0.q"], ["model.layers.0.q"], "llama", "remove_language_model_prefix"),
        (["model.language_model.h.q"], ["model.h.q"], "llama", "replace_model_language_model_prefix_by_model"),
        (["model.layers.0.q"], ["language_model.model.layers.0.q"], "llama", "add_language_model_prefix"),
        (["nothing.a"], ["encoder.a"], "bert", "none"),
        ([], ["encoder.a"], "bert", "none"),
    ],
)
def test_a_wrapper_is_found_by_the_names_it_explains(
    names: list[str], known: list[str], model_type: str, rule: str
) -> None:
    naming = find_naming(names, known, model_type)
    assert naming.wrapper.rule == rule
    if rule != "none":
        assert [naming.base_name(name) for name in names] == known
        assert [naming.adapter_name(name) for name in known] == names


def test_a_rule_does_not_speak_of_names_without_its_prefix() -> None:
    naming = find_naming(["bert.a"], ["a"], "bert")
    assert naming.base_name("classifier") is None


def rows(indices: Any, count: int, width: int = HIDDEN) -> dict[str, Any]:
    values = {f"{ROOT}{TABLE}.token_adapter.trainable_tokens_delta": np.ones((count, width), np.float32)}
    return {"arrays": factors() | values, "trainable_token_indices": indices}


def test_token_rows_are_two_tensors_numbers_and_values(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    directory = write_adapter(tmp_path / "a", **rows([6, 2], 2))
    reading = read_adapter(directory, tiny_base(), scratch=scratch)
    found = {item.name: item.value for item in reading.manifest.full_replacements}
    assert found.keys() == {f"{TABLE}.weight#rows", f"{TABLE}.weight#values"}
    numbers = np.asarray([6, 2], "<i8")
    assert found[f"{TABLE}.weight#rows"].tensor == tensor_digest("I64", (2,), numbers.tobytes())
    (made,) = reading.made.values()
    assert load_file(made)[f"{TABLE}.weight#rows"].tolist() == [6, 2]
    assert {file.path for file in reading.files} >= {made.name}


@pytest.mark.parametrize(
    ("indices", "count", "width"),
    [
        ([1], 2, HIDDEN),
        ([1, 1], 2, HIDDEN),
        ([1, 7], 2, HIDDEN),
        ([1, 2], 2, HIDDEN + 1),
        ({"other": [1, 2]}, 2, HIDDEN),
    ],
)
def test_rows_that_do_not_fit_their_numbers_or_table_are_refused(
    tmp_path: Path, indices: Any, count: int, width: int
) -> None:
    assert codes(write_adapter(tmp_path, **rows(indices, count, width))) == {"TOKEN_ROWS"}


def test_listed_tokens_without_rows_are_refused(tmp_path: Path) -> None:
    assert codes(write_adapter(tmp_path, trainable_token_indices=[1])) == {"TOKEN_ROWS"}


def test_a_whole_tensor_needs_a_field_that_announces_it(tmp_path: Path) -> None:
    pooler = factors() | {f"{ROOT}pooler.dense.weight": np.ones((HIDDEN, HIDDEN), np.float32)}
    assert codes(write_adapter(tmp_path / "a", pooler)) == {"KEY_UNSUPPORTED"}
    reading = read_adapter(write_adapter(tmp_path / "b", pooler, modules_to_save=["pooler"]), tiny_base())
    assert [item.name for item in reading.manifest.full_replacements] == ["pooler.dense.weight"]


def test_a_saved_module_of_an_older_layout_has_the_same_name(tmp_path: Path) -> None:
    value = np.ones((HIDDEN, HIDDEN), np.float32)
    digests = set()
    for number, key in enumerate(
        ("pooler.dense", "pooler.dense.modules_to_save", "pooler.dense.modules_to_save.default")
    ):
        arrays = factors(slot="default" if number == 2 else "") | {f"{ROOT}{key}.weight": value}
        directory = write_adapter(tmp_path / str(number), arrays, modules_to_save=["pooler.dense"])
        digests.add(read_adapter(directory, tiny_base()).manifest.digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("saved", "written", "refused"),
    [
        (["classifier", "score"], True, False),
        (["classifier", "score"], False, True),
        (["classifier", "pooler"], True, True),
    ],
)
def test_a_head_that_was_saved_is_in_the_file(tmp_path: Path, saved: list[str], written: bool, refused: bool) -> None:
    head = {f"{ROOT}classifier.weight": np.ones((2, HIDDEN), np.float32)} if written else {}
    directory = write_adapter(tmp_path, factors() | head, modules_to_save=saved)
    if refused:
        assert codes(directory) == {"SAVED_MODULE_MISSING"}
    else:
        assert len(read_adapter(directory, tiny_base()).manifest.full_replacements) == 1


def test_a_bias_of_an_adapted_module_is_replaced_where_the_config_says_so(tmp_path: Path) -> None:
    bias = {f"{ROOT}{QUERY}.base_layer.bias": np.ones(HIDDEN, np.float32)}
    assert codes(write_adapter(tmp_path / "a", factors() | bias)) == {"KEY_UNSUPPORTED"}
    reading = read_adapter(write_adapter(tmp_path / "b", factors() | bias, bias="lora_only"), tiny_base())
    assert [item.name for item in reading.manifest.full_replacements] == [f"{QUERY}.bias"]


def test_triplets_may_all_be_taken_from_a_module(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    for index, module in enumerate(TARGETS):
        rank = 0 if index == 0 else 2
        shapes = {"lora_A": (rank, HIDDEN), "lora_B": (HIDDEN, rank), "lora_E": (rank, 1)}
        arrays |= {f"{ROOT}{module}.{role}": np.ones(shape, np.float32) for role, shape in shapes.items()}
    pattern = {f"{module}.lora_E": [index != 0] * 2 + [False] * 2 for index, module in enumerate(TARGETS)}
    directory = write_adapter(tmp_path, arrays, peft_type="ADALORA", init_r=4, rank_pattern=pattern)
    adapter = read_adapter(directory, tiny_base()).manifest
    assert [factor.rank for factor in adapter.factors] == [0, 2, 2, 2]
    assert {factor.scale.value for factor in adapter.factors} == {8 / (4 + 1e-5)}
    config = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps(config | {"rank_pattern": {}}))
    assert codes(directory) == {"RANK_MISMATCH"}


@pytest.mark.parametrize(
    ("correlation", "share", "chance", "found"),
    [(0.38, 1.0, 1 / 384, True), (0.02, 1.0, 1 / 384, False), (0.4, 5.0, 1 / 384, False), (0.4, 1.0, 1 / 8, False)],
)
def test_factors_repeat_the_base_only_beyond_chance(
    correlation: float, share: float, chance: float, found: bool
) -> None:
    assert Repetition(correlation, share, chance).found is found
