"""What people ran into, cases 16 to 23, 25, 27 and 28: what an adapter directory is taken for or refused for."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.errors import RefusedError
from registry.service import add, look
from registry.service.context import Context
from tests.cases.product import ONE_MODULE, QUERY, ROOT, WEIGHTS, ask, codes, register, spec
from tests.registry.formats.builders import ADAPTERS, MINILM
from tests.support import tiny

HEAD = f"{ROOT}classifier.weight"
TABLE = f"{ROOT}embeddings.word_embeddings"
Tensors = dict[str, Any]


def refused(context: Context, base: Path, folder: Path, name: str = "one", **adapter: Any) -> set[str]:
    with pytest.raises(RefusedError) as caught:
        register(context, base, folder, name, **adapter)
    return {problem.code for problem in caught.value.problems}


def renamed(prefix: str, tensors: Tensors) -> Tensors:
    return {ROOT + prefix + name.removeprefix(ROOT): value for name, value in tensors.items()}


def conditions(context: Context, name: str) -> tuple[str, ...]:
    """What the registry keeps as provenance."""
    (said,) = [item for item in look.show(context, name).statements if item["topic"] == "provenance"]
    body: Any = said["body"]
    return tuple(body["conditions"])


@pytest.mark.parametrize("prefix", ["vision_tower.", "transformer.", "base."])
def test_case_16_an_adapter_of_other_names_is_refused(
    context: Context, tiny_base: Path, tmp_path: Path, prefix: str
) -> None:
    tensors = renamed(prefix, tiny.factors(1))
    assert refused(context, tiny_base, tmp_path, tensors=tensors) >= {"TARGET_MODULE_MISSING", "MODULES_MISSING"}


@pytest.mark.parametrize("prefix", ["bert.", "language_model.", "model.language_model.", "_orig_mod.", "0.auto_model."])
def test_case_16_a_known_wrapper_is_resolved_by_a_named_rule(
    context: Context, tiny_base: Path, tmp_path: Path, prefix: str
) -> None:
    plain = register(context, tiny_base, tmp_path, "plain")
    wrapped = register(context, tiny_base, tmp_path, "wrapped", tensors=renamed(prefix, tiny.factors(1)))
    assert (wrapped.digest, wrapped.created) == (plain.digest, False)
    assert wrapped.notes["wrapper_rule"] == f"remove_{prefix[:-1].replace('.', '_')}_prefix"


def test_case_16_the_reverse_wrapper_is_resolved_too(context: Context, tmp_path: Path) -> None:
    base = tiny.write_base(tmp_path / "base", {f"bert.{name}": value for name, value in tiny.base_tensors().items()})
    added = register(context, base, tmp_path, "one")
    assert added.notes["wrapper_rule"] == "add_bert_prefix"
    factors = look.show(context, "one").manifest["factors"]
    assert isinstance(factors, list)
    assert {str(dict(factor)["module"]) for factor in factors if isinstance(factor, dict)} == {
        f"bert.{module}" for module in tiny.MODULES
    }


def test_case_16_a_partial_match_is_refused(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    whole = tiny.factors(1)
    some = {name: value for name, value in whole.items() if "layer.0" in name}
    rest = renamed("bert.", {name: value for name, value in whole.items() if "layer.1" in name})
    assert "TARGET_MODULE_MISSING" in refused(context, tiny_base, tmp_path, tensors=some | rest)


def without(part: str) -> Tensors:
    return {name: value for name, value in tiny.factors(1).items() if part not in name}


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        (without(f"{QUERY}.lora_B"), "FACTOR_UNPAIRED"),
        (without(f"{QUERY}.lora_A"), "FACTOR_UNPAIRED"),
        (without(QUERY), "MODULES_MISSING"),
        (tiny.factors(1) | renamed("encoder.layer.7.", {f"{ROOT}lora_A.weight": np.ones((2, 8), np.float32)}), ""),
    ],
)
def test_case_17_an_incomplete_or_overfull_file_is_refused(
    context: Context, tiny_base: Path, tmp_path: Path, tensors: Tensors, code: str
) -> None:
    assert refused(context, tiny_base, tmp_path, tensors=tensors) == {code or "FACTOR_UNPAIRED"}


def test_case_17_keys_of_a_module_the_base_lacks_are_refused(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    far = {name.replace("layer.1", "layer.9"): value for name, value in tiny.factors(1).items()}
    found = refused(context, tiny_base, tmp_path, tensors=tiny.factors(1) | far)
    assert found == {"TARGET_MODULE_MISSING"}


def test_case_18_factors_of_zeros_are_a_condition(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    zero = {name: value * (0 if "lora_B" in name else 1) for name, value in tiny.factors(1).items()}
    register(context, tiny_base, tmp_path, "one", tensors=zero)
    assert conditions(context, "one") == ("B_ALL_ZERO",)


def test_case_19_order_and_origin_in_a_config_are_no_identity(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    first = register(context, tiny_base, tmp_path, "one", target_modules=["query", "value"], revision=None)
    second = register(
        context, tiny_base, tmp_path, "two", target_modules=["value", "query"], base_model_name_or_path="/home/me/x"
    )
    assert (second.digest, second.created) == (first.digest, False)


def test_case_20_overlapping_patterns_of_other_values_are_refused(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    patterns: dict[str, Any] = {"alpha_pattern": {"query": 1, r".*layer\.0\..*": 15}}
    assert refused(context, tiny_base, tmp_path, **patterns) == {"PATTERN_OVERLAP"}
    agreeing: dict[str, Any] = {"alpha_pattern": {"query": 8, r".*layer\.0\..*query": 8}}
    assert register(context, tiny_base, tmp_path, "two", **agreeing).created


def test_case_21_a_dora_flag_needs_a_magnitude_on_every_module(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    vectors = {f"{ROOT}{module}.lora_magnitude_vector": np.ones(tiny.HIDDEN, np.float32) for module in tiny.MODULES}
    assert refused(context, tiny_base, tmp_path, use_dora=True) == {"FACTOR_EXTRA_MISSING"}
    some = tiny.factors(1) | dict(list(vectors.items())[1:])
    assert refused(context, tiny_base, tmp_path, "two", tensors=some, use_dora=True) == {"FACTOR_EXTRA_MISSING"}
    whole = tiny.factors(1) | vectors
    assert refused(context, tiny_base, tmp_path, "three", tensors=whole) == {"FACTOR_EXTRA_UNDECLARED"}
    assert register(context, tiny_base, tmp_path, "four", tensors=whole, use_dora=True).created


@pytest.mark.parametrize("initializer", ["pissa", "pissa_niter_16", "olora", "corda", "lora_ga", "loftq"])
def test_case_22_native_factors_are_kept_as_such_and_not_composed(
    context: Context, tiny_base: Path, tmp_path: Path, initializer: str
) -> None:
    register(context, tiny_base, tmp_path, "one", init_lora_weights=initializer)
    manifest = look.show(context, "one").manifest
    assert (manifest["payload"], manifest["initializer"]) == ("native", manifest["family"])
    assert "PAYLOAD_NOT_PORTABLE" in codes(ask(context, spec({"one": 1.0})))


def copied(name: str, folder: Path, **config: Any) -> Path:
    shutil.copytree(ADAPTERS / name, folder)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def test_case_22_a_converted_adapter_is_a_plain_one(context: Context, tmp_path: Path) -> None:
    add.add_base(context, MINILM, "minilm")
    added = add.add_adapter(
        context, copied("minilm-pissa-converted", tmp_path / "a", modules_to_save=None), "minilm", "a"
    )
    manifest = look.show(context, "a").manifest
    assert (manifest["family"], manifest["payload"], added.notes["conditions"]) == ("lora", "portable", [])
    correlation = added.notes["base_correlation"]
    assert isinstance(correlation, float)
    assert abs(correlation) < 0.02


def test_case_22_a_snapshot_that_calls_itself_plain_is_told_by_its_correlation(
    context: Context,
) -> None:
    add.add_base(context, MINILM, "minilm")
    added = add.add_adapter(context, ADAPTERS / "minilm-pissa-init", "minilm", "a")
    assert added.notes["conditions"] == ["BASE_REPEATED"]
    # NumPy over all twelve modules: a median of 0.383, between 0.316 and 0.414.
    assert added.notes["base_correlation"] == pytest.approx(0.383, abs=0.03)


def test_case_23_a_converted_adapter_without_its_head_is_refused(context: Context) -> None:
    add.add_base(context, MINILM, "minilm")
    with pytest.raises(RefusedError) as caught:
        add.add_adapter(context, ADAPTERS / "minilm-pissa-converted", "minilm", "a")
    assert {problem.code for problem in caught.value.problems} == {"SAVED_MODULE_MISSING"}


def test_case_25_a_table_with_other_rows_is_refused(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    grown = tiny.factors(1) | {f"{TABLE}.weight": np.ones((40, tiny.HIDDEN), np.float32)}
    assert refused(context, tiny_base, tmp_path, tensors=grown) == {"REPLACEMENT_SHAPE"}


def test_case_25_a_copy_of_the_bases_table_replaces_nothing_and_witnesses_the_base(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    table = {f"{TABLE}.weight": tiny.base_tensors()["embeddings.word_embeddings.weight"]}
    register(context, tiny_base, tmp_path, "one", tensors=tiny.factors(1) | table)
    shown = look.show(context, "one")
    assert (shown.manifest["full_replacements"], shown.binding) == ([], "witnessed")


def tokenizer(folder: Path, words: list[str]) -> None:
    vocabulary = {word: index for index, word in enumerate(words)}
    document = {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(document))


def test_case_25_a_tokenizer_of_another_length_is_refused_and_another_of_the_same_a_condition(
    context: Context, tmp_path: Path
) -> None:
    base = tiny.write_base(tmp_path / "base")
    tokenizer(base, ["a", "b"])
    for name, words in (("longer", ["a", "b", "c"]), ("other", ["b", "a"]), ("same", ["a", "b"])):
        tokenizer(tiny.write_adapter(tmp_path / name, 1), words)
    assert refused(context, base, tmp_path, "longer") == {"TOKENIZER_LENGTH"}
    assert register(context, base, tmp_path, "other").notes["conditions"] == ["TOKENIZER_OTHER"]
    assert register(context, base, tmp_path, "same").notes["conditions"] == []


@pytest.mark.parametrize("side", ["table", "head", "saved head"])
def test_case_25_a_tied_table_or_head_is_not_adapted(context: Context, tmp_path: Path, side: str) -> None:
    table = tiny.base_tensors()["embeddings.word_embeddings.weight"]
    tensors = {f"bert.{name}": value for name, value in tiny.base_tensors().items()}
    base = tiny.write_base(tmp_path / "base", tensors)
    head, a, b = f"{ROOT}cls.predictions.decoder", np.ones((2, 8), np.float32), np.ones((32, 2), np.float32)
    adapters: dict[str, tuple[Tensors, dict[str, Any]]] = {
        "table": (
            {f"{ROOT}bert.embeddings.word_embeddings.lora_embedding_{x}": y for x, y in (("A", b.T), ("B", a.T))},
            {"target_modules": ["word_embeddings"]},
        ),
        "head": ({f"{head}.lora_A.weight": a, f"{head}.lora_B.weight": b}, {"target_modules": ["decoder"]}),
        "saved head": (
            renamed("bert.", tiny.factors(1)) | {f"{head}.weight": table + 1},
            {"modules_to_save": ["decoder"]},
        ),
    }
    written, config = adapters[side]
    tensors = {name: np.ascontiguousarray(value) for name, value in written.items()}
    assert refused(context, base, tmp_path, tensors=tensors, **config) == {"TIED_MODULE_ADAPTED"}


def damaged(folder: Path, change: str) -> str:
    """Damage a good directory; returns the code it has to be refused with."""
    weights = folder / WEIGHTS
    content = weights.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    last = [name for name in header if name != "__metadata__"][-1]
    if change == "pickle":
        (folder / "adapter_model.bin").write_bytes(pickle.dumps({}))
    elif change == "symlink":
        weights.rename(folder.parent / "outside")
        weights.symlink_to(folder.parent / "outside")
    elif change == "header":
        weights.write_bytes((2**40).to_bytes(8, "little") + content[8:])
    elif change == "trailing":
        weights.write_bytes(content + b"x")
    else:
        start, end = header[last]["data_offsets"]
        header[last]["data_offsets"] = [0, end - start]
        text = json.dumps(header).encode()
        weights.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    return {
        "pickle": "PICKLE_REFUSED",
        "symlink": "SYMLINK_REFUSED",
        "header": "HEADER_TOO_LARGE",
        "trailing": "TRAILING_BYTES",
        "overlap": "OFFSETS_OVERLAP",
    }[change]


@pytest.mark.parametrize("change", ["pickle", "symlink", "header", "trailing", "overlap"])
def test_case_27_a_hostile_or_damaged_file_is_refused(
    context: Context, tiny_base: Path, tmp_path: Path, change: str
) -> None:
    directory = tiny.write_adapter(tmp_path / "one", 1)
    code = damaged(directory, change)
    assert code in refused(context, tiny_base, tmp_path)


@pytest.mark.parametrize(("shape", "code"), [((0, tiny.HIDDEN), "FACTOR_EMPTY"), ((tiny.HIDDEN,), "FACTOR_NOT_MATRIX")])
def test_case_27_factors_without_elements_or_dimensions_are_refused(
    context: Context, tiny_base: Path, tmp_path: Path, shape: tuple[int, ...], code: str
) -> None:
    tensors = tiny.factors(1) | {f"{ROOT}{QUERY}.lora_A.weight": np.ones(shape, np.float32)}
    assert code in refused(context, tiny_base, tmp_path, tensors=tensors)


def test_case_28_an_unknown_switch_is_named_and_refused(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        register(context, tiny_base, tmp_path, "one", use_next_lora=True)
    assert [(problem.code, problem.path[-1]) for problem in caught.value.problems] == [
        ("CONFIG_FIELD_UNKNOWN", "use_next_lora")
    ]
    assert register(context, tiny_base, tmp_path, "two", use_next_lora=False).created


def test_case_28_a_config_for_one_module_still_reads(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    pair = {name: value for name, value in tiny.factors(1).items() if QUERY in name}
    assert register(context, tiny_base, tmp_path, "one", tensors=pair, **ONE_MODULE).created
