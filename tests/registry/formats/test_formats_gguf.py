"""GGUF files against llama.cpp's own reader and against what transformers makes of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, quants
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from registry.errors import RefusedError, UsageProblemError
from registry.formats import read_base
from registry.formats.base.config import read_architecture
from registry.formats.base.modules import layers
from registry.formats.gguf.blocks import LAYOUTS, NAMES
from schemas.base import BaseManifest
from schemas.digests import tensor_digest
from schemas.quantizers import GgufQuantizer
from tests.registry.formats.gguf_files import HIDDEN, INNER, LAYERS, TOKENS, WORDS, arrays, write_gguf

ARCHITECTURES: Final = ["llama", "qwen2", "qwen3"]


def manifest(path: Path) -> BaseManifest:
    return read_base(path).manifest


def refused(path: Path) -> list[str]:
    with pytest.raises(RefusedError) as caught:
        read_base(path, evidence="structural")
    return [problem.code for problem in caught.value.problems]


def test_block_types_are_those_of_ggml() -> None:
    for number, name in NAMES.items():
        assert (LAYOUTS[name].elements, LAYOUTS[name].size) == GGML_QUANT_SIZES[GGMLQuantizationType(number)]
        assert GGMLQuantizationType(number).name == name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_architecture_is_what_transformers_reads(tmp_path: Path, architecture: str) -> None:
    write_gguf(tmp_path / "m.gguf", architecture=architecture)
    theirs = AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")
    assert manifest(tmp_path).architecture == read_architecture(theirs.to_dict())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_are_the_packed_tensors_under_names_of_transformers(tmp_path: Path, architecture: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", architecture=architecture)
    found, made = manifest(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf")
    assert isinstance(found.weights, dict)
    theirs = {name: tuple(value.shape) for name, value in made.state_dict().items() if name != "lm_head.weight"}
    assert {name: ref.shape for name, ref in found.weights.items()} == theirs
    packed = {
        tensor_digest(tensor.tensor_type.name, tensor.shape.tolist()[::-1], tensor.data.tobytes())
        for tensor in GGUFReader(path).tensors
    }
    assert {ref.tensor for ref in found.weights.values()} == packed


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rotary_rows_say_how_stored_rows_become_those_of_transformers(tmp_path: Path, architecture: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", architecture=architecture, kind="F32")
    quantizer = manifest(path).quantizer
    assert isinstance(quantizer, GgufQuantizer)
    stored = arrays(architecture)["blk.1.attn_q.weight"]
    if quantizer.rotary_rows == "interleaved":
        stored = stored.reshape(4, HIDDEN // 8, 2, HIDDEN).swapaxes(1, 2).reshape(HIDDEN, HIDDEN)
    made = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf").state_dict()
    np.testing.assert_array_equal(made["model.layers.1.self_attn.q_proj.weight"].numpy(), stored)


def test_locations_lead_to_the_packed_bytes(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    reading, content = read_base(path), path.read_bytes()
    assert [file.path for file in reading.files] == ["m.gguf"]
    assert len(reading.locations) == len(arrays())
    for place in reading.locations:
        data = content[place.offset : place.offset + place.length]
        assert tensor_digest(place.dtype, place.shape, data) == place.tensor


def test_layers_have_the_shapes_of_the_unpacked_weights(tmp_path: Path) -> None:
    found = layers(manifest(write_gguf(tmp_path / "m.gguf")))
    assert found["model.layers.0.mlp.down_proj"].shape == (HIDDEN, INNER)
    assert found["model.embed_tokens"].kind == "embedding"
    assert found["lm_head"].weights == ("model.embed_tokens.weight",)
    assert len(found) == 2 + 7 * LAYERS


def test_another_packing_is_another_base_of_the_same_architecture(tmp_path: Path) -> None:
    kinds = ["F32", "Q4_0", "Q4_1", "Q8_0"]
    found = [manifest(write_gguf(tmp_path / f"{kind}.gguf", kind=kind)) for kind in kinds]
    assert len({base.digest for base in found}) == len({base.weights_digest for base in found}) == 4
    assert all(base.architecture == found[0].architecture for base in found)
    for base, kind in zip(found, kinds, strict=True):
        assert isinstance(base.quantizer, GgufQuantizer)
        assert base.quantizer.blocks.keys() == {"F32", kind}


def test_a_description_or_a_chat_template_is_no_identity_and_a_token_is(tmp_path: Path) -> None:
    plain = manifest(write_gguf(tmp_path / "a.gguf"))
    assert manifest(write_gguf(tmp_path / "b.gguf", template="other", general__author="somebody")) == plain
    other = manifest(write_gguf(tmp_path / "c.gguf", tokens=["x", *TOKENS[1:]]))
    assert (other.weights_digest, other.architecture) == (plain.weights_digest, plain.architecture)
    assert other.tokenizer != plain.tokenizer
    assert plain.tokenizer != "none"
    assert plain.tokenizer.length == WORDS


def test_evidence_below_content_reads_the_header_only(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    content = read_base(path).manifest
    structural, declared = (read_base(path, evidence=level) for level in ("structural", "declared"))
    assert isinstance(structural.manifest.weights, dict)
    assert isinstance(content.weights, dict)
    assert {name: ref.shape for name, ref in structural.manifest.weights.items()} == {
        name: ref.shape for name, ref in content.weights.items()
    }
    assert {ref.tensor for ref in structural.manifest.weights.values()} == {"not_verified"}
    assert declared.manifest.weights == "not_verified"
    assert structural.manifest.quantizer == declared.manifest.quantizer == content.quantizer
    assert not any((structural.files, structural.locations, declared.files))


def test_an_untied_output_is_a_weight_of_its_own(tmp_path: Path) -> None:
    tensors = arrays() | {"output.weight": np.ones((WORDS, HIDDEN), np.float32)}
    found = manifest(write_gguf(tmp_path / "m.gguf", tensors))
    assert found.architecture.model_dump()["tie_word_embeddings"] is False
    assert layers(found)["lm_head"].weights == ("lm_head.weight",)


def test_several_files_are_ambiguous_until_one_is_named(tmp_path: Path) -> None:
    one = write_gguf(tmp_path / "one.gguf")
    write_gguf(tmp_path / "two.gguf", kind="Q8_0")
    assert refused(tmp_path) == ["LAYOUT_AMBIGUOUS"]
    assert isinstance(manifest(one).quantizer, GgufQuantizer)


def test_a_link_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to(write_gguf(tmp_path / "m.gguf"))
    assert refused(tmp_path / "link.gguf") == ["SYMLINK_REFUSED"]
    with pytest.raises(UsageProblemError) as caught:
        read_base(tmp_path / "none.gguf")
    assert caught.value.code == "DIRECTORY_MISSING"


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"llama__expert_count": 8}, "CONFIG_KEY_UNKNOWN"),
        ({"llama__rope__scaling__type": "yarn"}, "CONFIG_KEY_UNKNOWN"),
        ({"split__count": 2}, "CONFIG_KEY_UNKNOWN"),
        ({"llama__attention__key_length": 8}, "CONFIG_FIELD_CONFLICT"),
        ({"general__alignment": 33}, "HEADER_INVALID"),
    ],
)
def test_a_key_that_is_not_understood_is_refused(tmp_path: Path, extra: dict[str, Any], code: str) -> None:
    assert refused(write_gguf(tmp_path / "m.gguf", **extra)) == [code]


def test_an_architecture_or_a_tensor_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    assert refused(write_gguf(tmp_path / "a.gguf", architecture="gemma2")) == ["MODEL_TYPE_UNLISTED"]
    extra = np.ones(HIDDEN, np.float32)
    for name in ("rope_freqs.weight", "blk.2.attn_norm.weight", "blk.0.attn_q.bias", "blk.0.ffn_gate_exps.weight"):
        path = tmp_path / f"{name}.gguf"
        assert refused(write_gguf(path, arrays() | {name: extra})) == ["WEIGHT_UNKNOWN"]


def changed(path: Path, change: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(change(path.read_bytes()))
    return path


def put(form: str, place: int, value: float) -> Callable[[bytes], bytes]:
    data = struct.pack(form, value)
    return lambda content: content[:place] + data + content[place + len(data) :]


def entry(name: bytes, behind: int, form: str, value: int) -> Callable[[bytes], bytes]:
    """Change a number some bytes behind a tensor's name: dimensions u32, each u64, type u32, offset u64."""
    return lambda content: put(form, content.index(name) + len(name) + behind, value)(content)


NORM: Final = b"blk.0.attn_norm.weight"
DAMAGE: Final[list[tuple[str, Callable[[bytes], bytes]]]] = [
    ("HEADER_INVALID", put("<I", 0, 7)),
    ("HEADER_INVALID", put("<I", 4, 1)),
    ("HEADER_INVALID", put(">I", 4, 3)),
    ("HEADER_TOO_LARGE", put("<Q", 8, 2**40)),
    ("HEADER_TOO_LARGE", put("<Q", 16, 2**40)),
    ("HEADER_TOO_LARGE", put("<Q", 24, 2**40)),
    ("HEADER_TRUNCATED", put("<Q", 24, 2**25)),
    ("HEADER_INVALID", put("<B", 32, 0)),
    ("HEADER_INVALID", put("<B", 33, 0xFF)),
    ("HEADER_TRUNCATED", lambda content: content[:6]),
    ("FILE_TRUNCATED", lambda content: content[:-40]),
    ("TRAILING_BYTES", lambda content: content + bytes(40)),
    ("SHAPE_INVALID", entry(NORM, 0, "<I", 5)),
    ("SHAPE_INVALID", entry(NORM, 4, "<Q", 0)),
    ("DTYPE_UNKNOWN", entry(NORM, 12, "<I", 4)),
    ("SHAPE_INVALID", entry(NORM, 12, "<I", 12)),
    ("OFFSETS_OVERLAP", entry(NORM, 16, "<Q", 0)),
    ("OFFSETS_GAP", entry(NORM, 16, "<Q", 2**30)),
    ("HEADER_INVALID", lambda content: content.replace(b"blk.1.attn_norm", b"blk.0.attn_norm")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "change"), DAMAGE)
def test_a_damaged_file_is_refused_by_what_is_wrong(
    tmp_path: Path, code: str, change: Callable[[bytes], bytes]
) -> None:
    assert code in refused(changed(write_gguf(tmp_path / "m.gguf"), change))


def test_a_missing_setting_is_refused(tmp_path: Path) -> None:
    path = changed(
        write_gguf(tmp_path / "m.gguf"), lambda content: content.replace(b"llama.block_count", b"general.block_cou")
    )
    assert set(refused(path)) >= {"CONFIG_FIELD_MISSING"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf")


@given(st.integers(0, 3000), st.binary(min_size=1, max_size=9), st.integers(0, 2**17))
def test_any_damage_is_read_or_refused_and_never_another_error(
    small: Path, place: int, data: bytes, length: int
) -> None:
    content = small.read_bytes()
    hurt = content[:place] + data + content[place + len(data) :]
    path = small.parent / "hurt.gguf"
    path.write_bytes(hurt[:length] if length < len(hurt) // 4 else hurt)
    with suppress(RefusedError):
        assert isinstance(read_base(path, evidence="structural").manifest.weights, dict)


def test_a_header_that_changes_while_the_file_is_read_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    grown = path.read_bytes() + bytes(64)

    def meddle(_: int) -> None:
        path.write_bytes(grown)

    with pytest.raises(RefusedError) as caught:
        read_base(path, progress=meddle)
    assert caught.value.code == "FILE_CHANGED"


def test_q4_1_decodes_as_the_quantizer_says() -> None:
    """A block is a scale, a least value and 32 codes: `scale * code + least`, in twenty bytes."""
    values = np.linspace(-1, 2, 32, dtype=np.float32)
    packed = quants.quantize(values, GGMLQuantizationType.Q4_1)
    assert packed.nbytes == LAYOUTS["Q4_1"].size
    assert values.size == LAYOUTS["Q4_1"].elements
