"""Packed bases: what bitsandbytes stored decodes as their record says, and nothing that differs passes for the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from registry.errors import RefusedError
from registry.formats import read_base
from registry.formats.base.modules import layers
from schemas.base import BaseManifest
from schemas.digests import tensor_digest
from schemas.quantizers import BitsAndBytes4Quantizer, BitsAndBytes8Quantizer, GroupQuantizer, ScaleLevel

BASES: Final = Path(__file__).parents[2] / "data" / "bases"
SHAPES: Final = {
    "mlp.down_proj": (32, 48), "mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32), "self_attn.k_proj": (16, 32),
    "self_attn.o_proj": (32, 32), "self_attn.q_proj": (32, 32), "self_attn.v_proj": (16, 32),
}  # fmt: skip
Q: Final = "model.layers.0.self_attn.q_proj"
Tensors = dict[str, torch.Tensor]


def manifest(name: str) -> BaseManifest:
    return read_base(BASES / name).manifest


def raw(name: str) -> dict[str, NDArray[Any]]:
    return {key: value.float().numpy() for key, value in load_file(BASES / name / "model.safetensors").items()}


@pytest.mark.parametrize("name", ["nf4", "fp4", "int8"])
def test_packed_layers_have_the_shapes_of_the_float_base(name: str) -> None:
    packed, plain = layers(manifest(name)), layers(manifest("float"))
    assert {key: (layer.kind, layer.shape) for key, layer in packed.items()} == {
        key: (layer.kind, layer.shape) for key, layer in plain.items()
    }
    assert manifest(name).shape_of(Q) == (32, 32)
    assert f"{Q}.weight" in packed[Q].weights
    assert len(packed[Q].weights) > 1


def test_four_forms_of_one_base_are_four_bases_of_one_architecture() -> None:
    found = [manifest(name) for name in ("float", "nf4", "fp4", "int8")]
    assert len({base.digest for base in found}) == len({base.weights_digest for base in found}) == 4
    assert len({base.architecture.model_dump_json() for base in found}) == 1
    assert found[0].quantizer == "none"


def test_nested_nf4_is_recorded_with_its_codebooks_and_levels_of_scales() -> None:
    found, tensors = manifest("nf4").quantizer, raw("nf4")
    codebook = tensor_digest("F32", [16], tensors[f"{Q}.weight.quant_map"].tobytes())
    nested = tensor_digest("F32", [256], tensors[f"{Q}.weight.nested_quant_map"].tobytes())
    assert found == BitsAndBytes4Quantizer(
        scheme="bitsandbytes_4bit",
        quant_type="nf4",
        codebook=codebook,
        scales=(
            ScaleLevel(block=64, dtype="U8", codebook=nested, centred=True),
            ScaleLevel(block=256, dtype="F32", codebook="none", centred=False),
        ),
        dtype="BF16",
        packed={f"model.layers.0.{module}": shape for module, shape in SHAPES.items()},
    )


@pytest.mark.parametrize("name", ["nf4", "fp4"])
def test_four_bit_codes_decode_as_the_record_says(name: str) -> None:
    """High nibble first, codebook, then each level of scales; within the error of sixteen values for a block of 64."""
    quantizer, tensors, exact = manifest(name).quantizer, raw(name), raw("float")
    assert isinstance(quantizer, BitsAndBytes4Quantizer)
    for module, shape in quantizer.packed.items():
        weight = f"{module}.weight"
        codes = tensors[weight].astype(np.uint8).reshape(-1)
        values = tensors[f"{weight}.quant_map"][np.stack([codes >> 4, codes & 15], axis=1).reshape(-1)]
        scales = tensors[f"{weight}.absmax"]
        if len(quantizer.scales) > 1:
            outer = np.repeat(tensors[f"{weight}.nested_absmax"], quantizer.scales[1].block)[: scales.size]
            scales = tensors[f"{weight}.nested_quant_map"][scales.astype(np.uint8)] * outer + mean_of(name, module)
        found = (values * np.repeat(scales, quantizer.scales[0].block)).reshape(shape)
        gap = np.abs(np.diff(np.sort(tensors[f"{weight}.quant_map"]))).max() / 2
        assert np.abs(found - exact[weight]).max() <= gap * scales.max() * 1.05


def mean_of(name: str, module: str) -> float:
    with safe_open(BASES / name / "model.safetensors", "np") as file:
        state = file.get_tensor(f"{module}.weight.quant_state.bitsandbytes__{name}")
    return float(json.loads(state.tobytes())["nested_offset"])


def test_int8_codes_decode_as_the_record_says() -> None:
    quantizer, tensors, exact = manifest("int8").quantizer, raw("int8"), raw("float")
    assert isinstance(quantizer, BitsAndBytes8Quantizer)
    assert quantizer.threshold == 6.0
    for module in quantizer.packed:
        rows = tensors[f"{module}.SCB"][:, None]
        found = tensors[f"{module}.weight"] * rows / 127
        assert (np.abs(found - exact[f"{module}.weight"]) <= rows / 127).all()


@pytest.mark.parametrize("name", ["nf4", "fp4", "int8"])
def test_structural_evidence_knows_the_packing_and_declared_only_that_there_is_one(name: str) -> None:
    structural = read_base(BASES / name, evidence="structural").manifest
    assert structural.quantizer == manifest(name).quantizer
    assert structural.weights_digest == "not_verified"
    assert read_base(BASES / name, evidence="declared").manifest.quantizer == "not_verified"


def changed(folder: Path, name: str, change: Callable[[Tensors], None], **config: Any) -> Path:
    """A copy of a base with tensors and the quantization_config changed; a field given as `...` is left out."""
    shutil.copytree(BASES / name, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors")
    document = json.loads((folder / "config.json").read_text())
    document["quantization_config"] |= config
    settings = {key: value for key, value in document["quantization_config"].items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(document | {"quantization_config": settings}))
    return folder


def nothing(_: Tensors) -> None:
    """Leave the tensors as they are."""


def every(part: str, value: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        for key in tensors:
            if key.endswith(part):
                tensors[key] = value(tensors[key])

    return change


def test_another_codebook_under_the_same_names_and_shapes_is_another_base(tmp_path: Path) -> None:
    other = read_base(changed(tmp_path / "a", "nf4", every(".quant_map", lambda table: table.flip(0)))).manifest
    plain = manifest("nf4")
    assert isinstance(other.quantizer, BitsAndBytes4Quantizer)
    assert isinstance(plain.quantizer, BitsAndBytes4Quantizer)
    assert other.quantizer.codebook != plain.quantizer.codebook
    assert other.quantizer.packed == plain.quantizer.packed
    assert other.digest != plain.digest


def test_another_order_of_nested_scale_codes_is_another_base(tmp_path: Path) -> None:
    change = every(".nested_quant_map", lambda table: table.flip(0))
    other = read_base(changed(tmp_path / "a", "nf4", change)).manifest.quantizer
    plain = manifest("nf4").quantizer
    assert isinstance(other, BitsAndBytes4Quantizer)
    assert isinstance(plain, BitsAndBytes4Quantizer)
    assert (other.codebook, other.scales[1:]) == (plain.codebook, plain.scales[1:])
    assert other.scales[0].codebook != plain.scales[0].codebook


def test_another_threshold_of_int8_is_another_base(tmp_path: Path) -> None:
    other = read_base(changed(tmp_path / "a", "int8", nothing, llm_int8_threshold=3.0)).manifest
    assert other.weights_digest == manifest("int8").weights_digest
    assert other.digest != manifest("int8").digest


def test_a_compute_dtype_is_chosen_at_load_time_and_no_identity(tmp_path: Path) -> None:
    other = changed(tmp_path / "a", "nf4", nothing, bnb_4bit_compute_dtype="bfloat16", llm_int8_threshold=1.0)
    assert read_base(other).manifest == manifest("nf4")


def state(**fields: Any) -> Callable[[Tensors], None]:
    """Change fields of the state of one module; `...` leaves one out."""

    def change(tensors: Tensors) -> None:
        key = next(key for key in tensors if key.startswith(f"{Q}.weight.quant_state"))
        document = json.loads(tensors[key].numpy().tobytes()) | fields
        text = json.dumps({name: value for name, value in document.items() if value is not ...})
        tensors[key] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    return change


def without(name: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        del tensors[name]

    return change


def with_tensor(name: str, value: torch.Tensor) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[name] = value

    return change


ONE: Final = torch.ones(16)
BROKEN: Final[list[tuple[str, Callable[[Tensors], None], dict[str, Any], str]]] = [
    ("nf4", nothing, {"load_in_4bit": ..., "_load_in_4bit": ..., "quant_method": "hqq"}, "BASE_QUANTIZED"),
    ("nf4", nothing, {"load_in_8bit": True}, "BASE_QUANTIZED"),
    ("nf4", nothing, {"load_in_4bit": False, "quant_method": ...}, "BASE_QUANTIZED"),
    ("nf4", nothing, {"new_setting": 2}, "CONFIG_KEY_UNKNOWN"),
    ("nf4", nothing, {"bnb_4bit_quant_type": "fp4"}, "CONFIG_FIELD_CONFLICT"),
    ("nf4", nothing, {"bnb_4bit_use_double_quant": False}, "CONFIG_FIELD_CONFLICT"),
    ("int8", nothing, {"llm_int8_has_fp16_weight": True}, "CONFIG_KEY_UNKNOWN"),
    ("nf4", state(shape=[16, 32]), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(shape=[1024]), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(shape=[-32, -32]), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(blocksize=32), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(blocksize=0), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(blocksize="64"), {}, "CONFIG_FIELD_TYPE"),
    ("nf4", state(quant_type="fp4"), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(dtype="int8"), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(nested_dtype="float16"), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(nested_offset=...), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(extra=1), {}, "QUANT_STATE_INVALID"),
    ("nf4", state(dtype="float32"), {}, "QUANT_STATE_MIXED"),
    ("nf4", with_tensor(f"{Q}.weight.quant_map", ONE), {}, "QUANT_STATE_MIXED"),
    ("nf4", with_tensor(f"{Q}.weight.quant_map", ONE[:8]), {}, "QUANT_STATE_INVALID"),
    ("nf4", with_tensor(f"{Q}.weight.absmax", ONE), {}, "QUANT_STATE_INVALID"),
    ("nf4", with_tensor(f"{Q}.weight.nested_absmax", ONE), {}, "QUANT_STATE_INVALID"),
    ("nf4", without(f"{Q}.weight"), {}, "QUANT_STATE_INVALID"),
    ("nf4", without(f"{Q}.weight.quant_state.bitsandbytes__nf4"), {}, "QUANT_STATE_INVALID"),
    ("nf4", with_tensor(f"{Q}.weight.quant_state.bitsandbytes__nf4", torch.zeros(2**17, dtype=torch.uint8)), {},
     "QUANT_STATE_INVALID"),
    ("nf4", nothing, {"load_in_4bit": False, "load_in_8bit": True}, "QUANT_STATE_INVALID"),
    ("int8", nothing, {"load_in_4bit": True, "load_in_8bit": False}, "QUANT_STATE_INVALID"),
    ("int8", with_tensor(f"{Q}.SCB", ONE), {}, "QUANT_STATE_INVALID"),
    ("int8", without(f"{Q}.weight"), {}, "QUANT_STATE_INVALID"),
    ("int8", with_tensor(f"{Q}.weight_format", torch.ones((), dtype=torch.uint8)), {}, "QUANT_STATE_INVALID"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "config", "code"), BROKEN)
def test_a_packing_that_does_not_fit_together_is_refused(
    tmp_path: Path, name: str, change: Callable[[Tensors], None], config: dict[str, Any], code: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        read_base(changed(tmp_path / "a", name, change, **config))
    assert code in {problem.code for problem in caught.value.problems}


def test_codes_whose_configuration_was_lost_are_refused(tmp_path: Path) -> None:
    directory = changed(tmp_path / "a", "nf4", nothing)
    document = json.loads((directory / "config.json").read_text())
    del document["quantization_config"]
    (directory / "config.json").write_text(json.dumps(document))
    with pytest.raises(RefusedError) as caught:
        read_base(directory)
    assert {problem.code for problem in caught.value.problems} == {"QUANT_STATE_INVALID"}


def grouped(folder: Path, tensors: Tensors, **config: Any) -> Path:
    """A tiny base with one packed module, by the key grammar of GPTQ or AWQ."""
    shutil.copytree(BASES / "float", folder)
    plain = load_file(folder / "model.safetensors")
    del plain[f"{Q}.weight"]
    packed = {f"{Q}.{leaf}": value for leaf, value in tensors.items()}
    save_file(plain | packed, folder / "model.safetensors")
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(document | {"quantization_config": config}))
    return folder


def words(*shape: int) -> torch.Tensor:
    return torch.arange(int(np.prod(shape)), dtype=torch.int32).reshape(shape)


GPTQ: Final = {"qweight": words(4, 32), "qzeros": words(2, 4), "scales": torch.ones(2, 32), "g_idx": words(32)}
AWQ: Final = {"qweight": words(32, 4), "qzeros": words(2, 4), "scales": torch.ones(2, 32)}


def test_gptq_and_awq_are_recorded_with_groups_and_order(tmp_path: Path) -> None:
    gptq = grouped(tmp_path / "a", GPTQ, quant_method="gptq", bits=4, group_size=16, desc_act=True, dataset="c4")
    awq = grouped(tmp_path / "b", AWQ, quant_method="awq", bits=4, group_size=16, version="gemm", zero_point=True)
    found = [read_base(path).manifest for path in (gptq, awq)]
    shared: dict[str, Any] = {"bits": 4, "group_size": 16, "packed": {Q: (32, 32)}}
    assert found[0].quantizer == GroupQuantizer(
        scheme="gptq", symmetric=True, activation_order=True, layout="gptq", **shared
    )
    assert found[1].quantizer == GroupQuantizer(
        scheme="awq", symmetric=False, activation_order=False, layout="gemm", **shared
    )
    assert {name: layer.shape for name, layer in layers(found[0]).items()} == {
        name: layer.shape for name, layer in layers(manifest("float")).items()
    }


@pytest.mark.parametrize(
    ("tensors", "config", "code"),
    [
        (GPTQ, {"quant_method": "gptq", "bits": 5, "group_size": 16}, "CONFIG_FIELD_VALUE"),
        (GPTQ, {"quant_method": "gptq", "bits": 4, "group_size": 0}, "CONFIG_FIELD_VALUE"),
        (GPTQ, {"quant_method": "gptq", "bits": 4, "group_size": 32}, "QUANT_STATE_INVALID"),
        (GPTQ, {"quant_method": "gptq", "bits": 4, "group_size": 16, "lm_head": True}, "CONFIG_KEY_UNKNOWN"),
        (GPTQ, {"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": "m"}, "CONFIG_FIELD_VALUE"),
        (GPTQ, {"quant_method": "gptq", "group_size": 16}, "CONFIG_FIELD_MISSING"),
        (AWQ, {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemv"}, "CONFIG_FIELD_VALUE"),
        ({"qweight": words(4, 32)}, {"quant_method": "gptq", "bits": 4, "group_size": 16}, "QUANT_STATE_INVALID"),
        ({"weight": torch.ones(32, 32)}, {"quant_method": "gptq", "bits": 4, "group_size": 16}, "QUANT_STATE_INVALID"),
    ],
)  # fmt: skip
def test_groups_that_do_not_fit_are_refused(
    tmp_path: Path, tensors: Tensors, config: dict[str, Any], code: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        read_base(grouped(tmp_path / "a", tensors, **config))
    assert code in {problem.code for problem in caught.value.problems}


def test_one_scale_for_all_input_features_has_no_group_size(tmp_path: Path) -> None:
    tensors = GPTQ | {"scales": torch.ones(1, 32), "qzeros": words(1, 4)}
    found = read_base(grouped(tmp_path / "a", tensors, quant_method="gptq", bits=4, group_size=-1)).manifest.quantizer
    assert isinstance(found, GroupQuantizer)
    assert found.group_size is None
