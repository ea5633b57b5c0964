"""A base is its numbers, its architecture and its tokenizer, whatever the packaging."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

from registry.errors import RefusedError
from registry.formats import read_base
from schemas.digests import blob_digest, tensor_digest
from tests.registry.formats.builders import MINILM, bert_weights, minilm, write_base, write_shards


def refused(directory: Path) -> dict[tuple[str | int, ...], str]:
    with pytest.raises(RefusedError) as caught:
        read_base(directory)
    return {problem.path: problem.code for problem in caught.value.problems}


def test_minilm_is_read_with_every_weight_and_file_digest() -> None:
    reading = read_base(MINILM)
    arrays = load_file(MINILM / "model.safetensors")
    assert isinstance(reading.manifest.weights, dict)
    assert set(reading.manifest.weights) == set(arrays) - {"embeddings.position_ids"}
    for name, ref in reading.manifest.weights.items():
        assert ref.tensor == tensor_digest("F32", arrays[name].shape, arrays[name].tobytes())
    for file in reading.files:
        content = (MINILM / file.path).read_bytes()
        assert file.digests.digest == f"blake3:{blake3(content).hexdigest()}"
        assert file.digests.size == len(content)


def test_locations_lead_to_the_bytes_of_each_tensor(tmp_path: Path) -> None:
    directory = write_base(tmp_path)
    content = (directory / "model.safetensors").read_bytes()
    reading = read_base(directory)
    assert len(reading.locations) == len(bert_weights())
    for place in reading.locations:
        data = content[place.offset : place.offset + place.length]
        assert tensor_digest(place.dtype, place.shape, data) == place.tensor
        assert place.file == blob_digest(content)


def test_another_sharding_has_the_same_base_digest(tmp_path: Path) -> None:
    weights = bert_weights()
    names = sorted(weights)
    shards = {
        "model-00001-of-00002.safetensors": {name: weights[name] for name in names[::2]},
        "model-00002-of-00002.safetensors": {name: weights[name] for name in names[1::2]},
    }
    single, sharded = read_base(write_base(tmp_path / "a")), read_base(write_shards(tmp_path / "b", shards), jobs=2)
    assert sharded.manifest.canonical() == single.manifest.canonical()
    assert {place.tensor for place in sharded.locations} == {place.tensor for place in single.locations}


def test_one_changed_weight_is_another_base(tmp_path: Path) -> None:
    weights = bert_weights()
    plain = read_base(write_base(tmp_path / "a", weights)).manifest
    weights["pooler.dense.weight"][0, 0] += 1
    other = read_base(write_base(tmp_path / "b", weights)).manifest
    assert other.weights_digest != plain.weights_digest
    assert other.digest != plain.digest


def test_weights_as_half_precision_or_under_another_name_are_another_base(tmp_path: Path) -> None:
    weights = bert_weights()
    plain = read_base(write_base(tmp_path / "a", weights)).manifest
    half: dict[str, Any] = {name: value.astype(np.float16) for name, value in weights.items()}
    prefixed = {f"bert.{name}": value for name, value in weights.items()}
    digests = {
        read_base(write_base(tmp_path / key, value)).manifest.digest
        for key, value in {"b": half, "c": prefixed}.items()
    }
    assert len(digests | {plain.digest}) == 3


def test_buffers_are_no_weights(tmp_path: Path) -> None:
    weights = bert_weights()
    plain = read_base(write_base(tmp_path / "a", weights)).manifest
    weights["embeddings.position_ids"] = np.arange(5)[None]
    reading = read_base(write_base(tmp_path / "b", weights))
    assert reading.manifest == plain
    assert len(reading.locations) == len(weights) - 1


LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 4, "num_attention_heads": 2, "vocab_size": 3}


def llama_weights() -> dict[str, Any]:
    embedding = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding.copy()}


def test_a_tied_copy_counts_once(tmp_path: Path) -> None:
    weights = llama_weights()
    both = read_base(write_base(tmp_path / "a", weights, **LLAMA, tie_word_embeddings=True)).manifest
    del weights["lm_head.weight"]
    once = read_base(write_base(tmp_path / "b", weights, **LLAMA, tie_word_embeddings=True)).manifest
    assert both == once


def test_a_tied_copy_with_other_numbers_is_refused(tmp_path: Path) -> None:
    weights = llama_weights()
    weights["lm_head.weight"][0, 0] = 9
    directory = write_base(tmp_path, weights, **LLAMA, tie_word_embeddings=True)
    assert set(refused(directory).values()) == {"TIED_WEIGHTS_DIFFER"}


def test_untied_embeddings_are_two_weights(tmp_path: Path) -> None:
    reading = read_base(write_base(tmp_path, llama_weights(), **LLAMA))
    assert isinstance(reading.manifest.weights, dict)
    assert len(reading.manifest.weights) == 2


def test_evidence_below_content_says_not_verified(tmp_path: Path) -> None:
    directory = write_base(tmp_path)
    content = read_base(directory)
    structural, declared = (read_base(directory, evidence=level) for level in ("structural", "declared"))
    assert isinstance(content.manifest.weights, dict)
    assert isinstance(structural.manifest.weights, dict)
    for name, ref in content.manifest.weights.items():
        other = structural.manifest.weights[name]
        assert (other.tensor, other.dtype, other.shape) == ("not_verified", ref.dtype, ref.shape)
    assert structural.manifest.weights_digest == "not_verified"
    assert declared.manifest.weights == "not_verified"
    assert structural.locations == declared.locations == ()
    assert len({reading.manifest.digest for reading in (content, structural, declared)}) == 3


def test_progress_counts_every_byte_of_the_weights(tmp_path: Path) -> None:
    directory = write_base(tmp_path)
    seen: list[int] = []
    read_base(directory, progress=seen.append)
    assert sum(seen) == (directory / "model.safetensors").stat().st_size


@pytest.mark.parametrize("change", [b"", b"more"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, change: bytes) -> None:
    # Larger than one block, so that a later read meets the change.
    large: dict[str, Any] = {"x": np.zeros(3 * 2**20, np.float32)}
    path = write_base(tmp_path, large) / "model.safetensors"
    content = path.read_bytes()

    def meddle(_: int) -> None:
        path.write_bytes(content + change if change else content[: 9 * 2**20])

    with pytest.raises(RefusedError) as caught:
        read_base(tmp_path, progress=meddle)
    assert caught.value.code == "FILE_CHANGED"


def test_an_index_must_agree_with_its_shards(tmp_path: Path) -> None:
    one, two = "model-1.safetensors", "model-2.safetensors"
    x, y = np.zeros(2, np.float32), np.ones(2, np.float32)
    index = "model.safetensors.index.json"
    cases: list[tuple[dict[str, Any], dict[str, str] | None, str]] = [
        ({one: {"x": x}, two: {"y": y}}, {"x": two, "y": two}, "INDEX_MISMATCH"),
        ({one: {"x": x}, two: {"x": x, "y": y}}, {"x": one, "y": two}, "INDEX_MISMATCH"),
        ({one: {"x": x}}, {"x": one, "y": one}, "INDEX_MISMATCH"),
        ({one: {"x": x}}, {"x": one, "y": two}, "FILE_MISSING"),
        ({one: {"x": x}}, {}, "INDEX_INVALID"),
    ]
    for number, (shards, weight_map, code) in enumerate(cases):
        found = refused(write_shards(tmp_path / str(number), shards, weight_map))
        assert set(found.values()) == {code}
        assert {path[0] for path in found} == {index}


def test_no_weights_and_two_layouts_are_refused(tmp_path: Path) -> None:
    directory = write_shards(tmp_path, {"model-1.safetensors": {"x": np.zeros(1)}})
    save_file({"x": np.zeros(1)}, directory / "model.safetensors")
    assert set(refused(directory).values()) == {"LAYOUT_AMBIGUOUS"}
    for path in directory.glob("model*"):
        path.unlink()
    assert set(refused(directory).values()) == {"WEIGHTS_MISSING"}


def test_the_tokenizer_is_as_long_as_transformers_says() -> None:
    found = minilm().tokenizer
    assert found != "none"
    assert found.length == len(AutoTokenizer.from_pretrained(MINILM))


def tokenizer_digest(directory: Path, tokenizer: dict[str, Any], settings: dict[str, Any]) -> str:
    write_base(directory)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    found = read_base(directory, evidence="declared").manifest.tokenizer
    assert found != "none"
    return found.digest


def test_tokenizer_identity_is_what_text_becomes(tmp_path: Path) -> None:
    plain: dict[str, Any] = {
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}},
        "truncation": None,
        "padding": None,
    }
    settings: dict[str, Any] = {"unk_token": "a"}
    same: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (plain | {"truncation": {"max_length": 8}, "padding": {"pad_id": 0}}, settings),
        (dict(reversed(plain.items())), {"unk_token": {"content": "a"}, "chat_template": "{{ x }}"}),
    ]
    other: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (plain | {"normalizer": {"type": "Lowercase"}}, settings),
        (plain | {"model": {"type": "WordLevel", "vocab": {"a": 1, "b": 0}}}, settings),
        (plain, {"unk_token": "b"}),
    ]
    digest = tokenizer_digest(tmp_path / "t", plain, settings)
    assert {tokenizer_digest(tmp_path / f"s{n}", *case) for n, case in enumerate(same)} == {digest}
    assert len({digest} | {tokenizer_digest(tmp_path / f"o{n}", *case) for n, case in enumerate(other)}) == 4


def test_a_vocabulary_by_position_and_added_tokens_count_as_ids(tmp_path: Path) -> None:
    unigram = {"type": "Unigram", "vocab": [["a", 0.0], ["b", -1.5]]}
    document = {"model": unigram, "added_tokens": [{"content": "<x>", "id": 2}, {"content": "b", "id": 1}]}
    write_base(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    found = read_base(tmp_path).manifest.tokenizer
    assert found != "none"
    assert found.length == 3


def test_a_base_without_tokenizer_says_none(tmp_path: Path) -> None:
    assert read_base(write_base(tmp_path)).manifest.tokenizer == "none"


def test_a_tokenizer_without_vocabulary_is_refused(tmp_path: Path) -> None:
    directory = write_base(tmp_path)
    (directory / "tokenizer.json").write_text("{}")
    assert set(refused(directory).values()) == {"TOKENIZER_INVALID"}


def test_a_longest_text_of_1e30_as_python_writes_it_is_read(tmp_path: Path) -> None:
    tokenizer: dict[str, Any] = {"model": {"type": "WordLevel", "vocab": {"a": 0}}}
    unlimited = int(1e30)
    assert tokenizer_digest(tmp_path / "a", tokenizer, {"model_max_length": unlimited}) == tokenizer_digest(
        tmp_path / "b", tokenizer, {}
    )
    write_base(tmp_path / "c")
    (tmp_path / "c" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "c" / "tokenizer_config.json").write_text(f'{{"model_max_length": {unlimited + 1}}}')
    assert set(refused(tmp_path / "c").values()) == {"JSON_INTEGER"}
