"""What foreign directories are refused for: each by one code that names the feature, with the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from registry.errors import RefusedError
from registry.formats import AdapterReading, read_adapter, read_base
from tests.registry.formats.producers import grammars
from tests.registry.formats.producers.bases import (
    GROUPS,
    HEAD_DIM,
    HEADS,
    INNER,
    LAYERS,
    WIDE,
    base_weights,
    write_base,
)
from tests.registry.formats.producers.described import read

F32: Final = np.float32
Edit = Callable[[dict[str, Any]], object]
Change = Callable[[Path], object]


def tensors(directory: Path, change: Edit, metadata: dict[str, str] | None = None) -> None:
    """Change the tensors of the one safetensors file."""
    (path,) = directory.glob("*.safetensors")
    arrays = load_file(path)
    change(arrays)
    save_file(arrays, path, metadata)


def config(directory: Path, name: str, change: Edit) -> None:
    """Change a config."""
    document = json.loads((directory / name).read_text())
    change(document)
    (directory / name).write_text(json.dumps(document))


def put(name: str, *shape: int) -> Edit:
    return lambda arrays: arrays.update({name: np.ones(shape, F32)})


def drop(end: str) -> Edit:
    return lambda arrays: [arrays.pop(name) for name in list(arrays) if name.endswith(end)]


def turned(end: str, value: Any) -> Edit:
    return lambda arrays: [arrays.update({name: value}) for name in list(arrays) if name.endswith(end)]


def cut(end: str, rows: int) -> Edit:
    return lambda arrays: [arrays.update({name: arrays[name][:rows]}) for name in list(arrays) if name.endswith(end)]


YAML: Final = "model_config.yaml"
FLAT: Final = "lora_te_layers_0_self_attn_q_proj"
ROUTED: Final = "model.layers.0.mlp.gate_proj"
ROOT: Final = "base_model.model."
KQV: Final = "model.decoder.layers.0.self_attention.adapter_layer.lora_kqv_adapter"


def hydra(directory: Path) -> None:
    grammars.routed(directory, shared=True)


def mlx(directory: Path) -> None:
    grammars.mlx_old(directory)


def tune(directory: Path) -> None:
    grammars.torchtune_mistral(directory)


def nemo(directory: Path) -> None:
    grammars.nemo_fused(directory)


def kohya(directory: Path) -> None:
    grammars.kohya_gemma(directory)


def alphas(directory: Path) -> None:
    grammars.diffusers_alphas(directory)


def tasks(directory: Path) -> None:
    grammars.olora(directory, 4, apart=True)


def plain(directory: Path) -> None:
    grammars.unsloth(directory)


def nothing(directory: Path) -> None:
    del directory


def parameters(**values: Any) -> Change:
    return lambda d: config(d, "adapter_config.json", lambda document: document["lora_parameters"].update(values))


def fields(name: str = "adapter_config.json", **values: Any) -> Change:
    return lambda d: config(d, name, lambda document: document.update(values))


def with_tensors(change: Edit, metadata: dict[str, str] | None = None) -> Change:
    return lambda d: tensors(d, change, metadata)


def file(name: str, content: bytes = b"") -> Change:
    return lambda d: bool((d / name).write_bytes(content))


METADATA: Final = json.dumps({"text_encoder.peft_type": "LORA", "text_encoder.r": 4, "text_encoder.lora_alpha": 8,
                              "text_encoder.target_modules": ["query"]})  # fmt: skip

CASES: Final[dict[str, tuple[str, Change, Change, str, str]]] = {
    # kohya and LyCORIS
    "kohya-unet": ("gemma", kohya, with_tensors(put("lora_unet_mid_block_attn.lora_up.weight", 8, 2)),
                   "KEY_UNSUPPORTED", "diffusion model"),
    "kohya-two-encoders": ("gemma", kohya, with_tensors(put("lora_te2_layers_0_mlp_up_proj.lora_up.weight", INNER, 2)),
                           "PARTS_MIXED", "lora_te2"),
    "kohya-alpha-zero": ("gemma", kohya, with_tensors(turned(".alpha", np.array(0, F32))), "SCALE_AMBIGUOUS", "0"),
    "kohya-alpha-nan": ("gemma", kohya, with_tensors(turned(".alpha", np.array(np.nan, F32))), "SCALAR_INVALID", "nan"),
    "kohya-alpha-vector": ("gemma", kohya, with_tensors(turned(".alpha", np.ones(2, F32))), "SCALAR_INVALID", "[2]"),
    "kohya-tucker": ("gemma", kohya, with_tensors(put(f"{FLAT}.lora_mid.weight", 2, 2, 3, 3)),
                     "KEY_UNSUPPORTED", "Tucker"),
    "kohya-full": ("gemma", kohya, with_tensors(put(f"{FLAT}.diff", 16, 16)), "KEY_UNSUPPORTED", "full difference"),
    "kohya-dora-of-inputs": ("gemma", kohya, with_tensors(lambda arrays: [
        arrays.update({name.replace("lora_up.weight", "dora_scale"): np.ones((1, 16), F32)})
        for name in list(arrays) if name.endswith("lora_up.weight")
    ]), "KEY_UNSUPPORTED", "one per input"),
    "kohya-dora-on-one": ("gemma", kohya, with_tensors(put(f"{FLAT}.dora_scale", 16, 1)),
                          "FACTOR_EXTRA_MISSING", "only"),
    "kohya-unpaired": ("gemma", kohya, with_tensors(drop("q_proj.lora_up.weight")), "FACTOR_UNPAIRED", "lora_down"),
    "kohya-other-base": ("bert", kohya, nothing, "TARGET_MODULE_MISSING", "layers_0_self_attn_q_proj"),
    "kohya-two-files": ("gemma", kohya, lambda d: save_file({"x": np.ones(1, F32)}, d / "first.safetensors"),
                        "LAYOUT_AMBIGUOUS", "first.safetensors"),
    "kohya-unknown": ("gemma", kohya, with_tensors(put("lora_te_x.new_thing", 2)), "KEY_UNKNOWN", "new_thing"),
    # mlx-lm
    "mlx-full": ("phi", mlx, fields(fine_tune_type="full"), "FEATURE_UNSUPPORTED", "full"),
    "mlx-alpha": ("phi", mlx, parameters(alpha=16.0), "SCALE_AMBIGUOUS", "16"),
    "mlx-unknown-parameter": ("phi", mlx, parameters(rank_schedule="cosine"), "CONFIG_FIELD_UNKNOWN", "cosine"),
    "mlx-unknown-field": ("phi", mlx, fields(new_scale=2), "CONFIG_FIELD_UNKNOWN", "2"),
    "mlx-rank": ("phi", mlx, parameters(rank=3, alpha=3), "RANK_MISMATCH", "2"),
    "mlx-experts": ("phi", mlx, with_tensors(lambda arrays: [
        arrays.update({name: np.ones((4, 2, 16), F32)}) for name in list(arrays) if "fc1" in name
    ]), "KEY_UNSUPPORTED", "stacked"),
    "mlx-dora-without-magnitude": ("phi", mlx, fields(use_dora=True), "FACTOR_EXTRA_MISSING", "lora_a"),
    "mlx-magnitude-without-dora": ("phi", mlx, with_tensors(put("model.layers.1.mlp.fc1.m", INNER)),
                                   "FACTOR_EXTRA_UNDECLARED", "one"),
    "mlx-block-lost": ("phi", mlx, with_tensors(lambda arrays: [
        arrays.pop(name) for name in list(arrays) if ".2." in name
    ]), "MODULES_MISSING", "1 in the file"),
    "mlx-module-lost": ("phi", mlx, with_tensors(lambda arrays: [
        arrays.pop(name) for name in list(arrays) if ".2.mlp" in name
    ]), "MODULES_MISSING", "none in the file"),
    # torchtune
    "torchtune-fused-base": ("gpt2", tune, nothing, "ARCHITECTURE_MISMATCH", "gpt2"),
    "torchtune-pickle": ("mistral", tune, file("adapter_model.pt", b"PK"), "PICKLE_REFUSED", "adapter_model.pt"),
    "torchtune-unknown-module": ("mistral", tune, with_tensors(put("layers.0.attn.rope.lora_a.weight", 2, 8)),
                                 "KEY_UNKNOWN", "rope"),
    "torchtune-block-lost": ("mistral", tune, with_tensors(lambda arrays: [
        arrays.pop(name) for name in list(arrays) if "layers.2." in name
    ]), "MODULES_MISSING", "none"),
    "torchtune-targets": ("mistral", tune, fields(target_modules=["qkv"]), "CONFIG_FIELD_VALUE", "qkv"),
    # NeMo
    "nemo-archive": ("llama", nemo, file("adapter.nemo"), "PICKLE_REFUSED", "pickled"),
    "nemo-ranks": ("llama", nemo, fields(YAML, tensor_model_parallel_size=2), "FEATURE_UNSUPPORTED", "2"),
    "nemo-method": ("llama", nemo, fields(YAML, peft={"peft_scheme": "ia3"}), "METHOD_UNSUPPORTED", "ia3"),
    "nemo-heads": ("llama", nemo, fields(YAML, num_attention_heads=8, kv_channels=2, num_query_groups=4),
                   "ARCHITECTURE_MISMATCH", "heads=8"),
    "nemo-other-base": ("bert", nemo, nothing, "ARCHITECTURE_MISMATCH", "bert"),
    "nemo-rows": ("llama", nemo, with_tensors(cut("kqv_adapter.linear_out.weight", 9)), "FACTOR_SHAPE", "9"),
    "nemo-next": ("llama", nemo, with_tensors(put("decoder.layers.0.linear_qkv.adapter.linear_in.weight", 2, 16)),
                  "KEY_UNSUPPORTED", "NeMo 2"),
    "nemo-experts": ("llama", nemo, with_tensors(
        put("model.decoder.layers.0.mlp.adapter_layer.lora_moe_hto4h_adapter.linear_in.weight", 2, 16)),
        "KEY_UNSUPPORTED", "lora_moe_hto4h_adapter"),
    "nemo-twice": ("llama", nemo, with_tensors(lambda arrays: arrays.update({
        f"{KQV.replace('kqv_adapter', 'unfused_kqv_adapter')}.q_adapter.{end}.weight": np.ones(shape, F32)
        for end, shape in (("linear_in", (2, 16)), ("linear_out", (16, 2)))
    })), "KEY_REPEATED", "fused"),
    "nemo-yaml": ("llama", nemo, file(YAML, b"a: &x [1]\nb: *x"), "YAML_INVALID", "YAMLError"),
    # diffusers
    "diffusers-unet": ("bert", alphas, with_tensors(put("unet.mid_block.attn.to_q.lora_A.weight", 2, 8)),
                       "KEY_UNSUPPORTED", "diffusion model"),
    "diffusers-processor": ("bert", alphas, with_tensors(put("down_blocks.0.processor.to_q_lora.down.weight", 2, 8)),
                            "KEY_UNSUPPORTED", "diffusion model"),
    "diffusers-two-encoders": ("bert", alphas, with_tensors(put("text_encoder_2.a.lora_A.weight", 2, 8)),
                               "PARTS_MIXED", "text_encoder_2"),
    "diffusers-two-scales": ("bert", alphas, with_tensors(lambda _: None, {"lora_adapter_metadata": METADATA}),
                             "SCALE_AMBIGUOUS", "both"),
    "diffusers-metadata": ("bert", alphas, with_tensors(drop(".alpha"), {"lora_adapter_metadata": "{"}),
                           "JSON_INVALID", ""),
    "diffusers-lonely-alpha": ("bert", alphas, with_tensors(put("text_encoder.x.alpha", 1)),
                               "FACTOR_UNPAIRED", "alpha"),
    # HydraLoRA, LoRAMoE, O-LoRA
    "hydra-expert-lost": ("llama", hydra, with_tensors(drop("lora_B1.weight")), "EXPERTS_MISMATCH", "[0, 2]"),
    "hydra-count": ("llama", hydra, fields(lora_nums=4), "EXPERTS_MISMATCH", "[0, 1, 2]"),
    "hydra-router-lost": ("llama", hydra, with_tensors(drop("lora_route.weight")), "ROUTER_MISMATCH", "none"),
    "hydra-router-shape": ("llama", hydra, with_tensors(cut("lora_route.weight", 2)), "ROUTER_MISMATCH", "[2, 16]"),
    "hydra-a-lost": ("llama", hydra, with_tensors(drop("lora_A.weight")), "FACTOR_UNPAIRED", "lora_B"),
    "hydra-mixed": ("llama", hydra, with_tensors(lambda arrays: [
        arrays.pop(f"{ROOT}{ROUTED}.lora_A.weight"),
        arrays.update({f"{ROOT}{ROUTED}.lora_A{n}.weight": np.ones((2, WIDE), F32) for n in range(3)}),
    ]), "EXPERTS_MISMATCH", "both"),
    "hydra-mmoelora": ("llama", plain, fields(peft_type="MMOELORAS", expert_num=4, task_num=2), "METHOD_UNSUPPORTED",
                       "MMOELORAS"),
    "olora-rank": ("llama", tasks, fields(r_sum=6), "RANK_MISMATCH", "4 rows"),
    "olora-task-rank": ("llama", tasks, fields(r=4), "RANK_MISMATCH", "2 rows"),
    "olora-pair-lost": ("llama", tasks, with_tensors(lambda arrays: [
        arrays.pop(f"{ROOT}model.layers.0.self_attn.q_proj.loranew_{side}.weight") for side in "AB"
    ]), "FACTOR_UNPAIRED", "alone"),
    # layouts
    "x-lora": ("llama", plain, file("xlora_config.json", b"{}"), "LAYOUT_UNSUPPORTED", "X-LoRA"),
    "gguf": ("llama", nothing, file("lora.gguf"), "LAYOUT_UNSUPPORTED", "GGUF"),
    "distributed": ("llama", nothing, file("__0_0.distcp"), "LAYOUT_UNSUPPORTED", "distributed"),
    "empty": ("llama", nothing, nothing, "FILE_MISSING", "empty"),
    # PEFT directories of trainers
    "trainer-arguments": ("llama", plain, file("training_args.bin"), "PICKLE_REFUSED", "training_args.bin"),
    "optimizer": ("llama", plain, file("optimizer.pt"), "PICKLE_REFUSED", "optimizer.pt"),
    "two-tensor-files": ("llama", plain, lambda d: save_file({"x": np.ones(1, F32)}, d / "extra.safetensors"),
                         "TENSOR_FILE_UNEXPECTED", "extra"),
    "index-beside-a-file": ("llama", plain, file("adapter_model.safetensors.index.json", b"{}"), "LAYOUT_AMBIGUOUS",
                            "both"),
    "unknown-field": ("llama", plain, fields(unsloth_secret_scale=2.0), "CONFIG_FIELD_UNKNOWN", "2.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_foreign_directory_is_refused_by_the_name_of_its_feature(name: str, tmp_path: Path) -> None:
    model_type, write, change, code, named = CASES[name]
    directory = tmp_path / "adapter"
    directory.mkdir()
    write(directory)
    change(directory)
    with pytest.raises(RefusedError) as caught:
        read(directory, model_type, tmp_path)
    found = [problem for problem in caught.value.problems if problem.code == code]
    assert found, caught.value
    assert any(named in problem.observed or named in problem.expected for problem in found), caught.value
    assert all(problem.hint for problem in found)


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case[2] is nothing and case[1] is not nothing]
)
def test_a_directory_refused_on_one_base_is_read_on_its_own(name: str, tmp_path: Path) -> None:
    own = {"kohya": "gemma", "torchtune": "mistral", "nemo": "llama"}[name.partition("-")[0]]
    directory = tmp_path / "adapter"
    directory.mkdir()
    CASES[name][1](directory)
    assert read(directory, own, tmp_path).manifest.factors


# Flattened names


def _read_flat(tmp_path: Path, modules: list[str], flat: str) -> AdapterReading:
    base = write_base(tmp_path / "base", "llama")
    extra = {f"{module}.weight": np.ones((WIDE, WIDE), F32) for module in modules}
    save_file(base_weights("llama") | extra, base / "model.safetensors")
    directory = tmp_path / "adapter"
    directory.mkdir()
    pair = {f"{flat}.lora_down.weight": np.ones((2, WIDE), F32), f"{flat}.lora_up.weight": np.ones((WIDE, 2), F32)}
    save_file(pair, directory / "a.safetensors")
    return read_adapter(directory, read_base(base).manifest)


def test_a_flattened_name_of_two_layers_is_refused_with_both(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        _read_flat(tmp_path, ["model.extra.up_proj", "model.extra_up.proj"], "lora_te_extra_up_proj")
    (problem,) = caught.value.problems
    assert problem.code == "MODULE_NAME_AMBIGUOUS"
    assert "model.extra.up_proj" in problem.observed
    assert "model.extra_up.proj" in problem.observed


def test_a_flattened_name_of_one_layer_is_that_layer(tmp_path: Path) -> None:
    reading = _read_flat(tmp_path, ["model.extra.up_proj"], "lora_te_extra_up_proj")
    assert [factor.module for factor in reading.manifest.factors] == ["model.extra.up_proj"]


def test_two_flattened_names_of_one_layer_are_refused(tmp_path: Path) -> None:
    directory = tmp_path / "adapter"
    directory.mkdir()
    arrays = {
        f"lora_te_{flat}.{end}": np.ones(shape, F32)
        for flat in ("layers_0_mlp_up_proj", "model_layers_0_mlp_up_proj")
        for end, shape in (("lora_down.weight", (2, WIDE)), ("lora_up.weight", (INNER, 2)))
    }
    save_file(arrays, directory / "a.safetensors")
    with pytest.raises(RefusedError) as caught:
        read(directory, "llama", tmp_path)
    assert {problem.code for problem in caught.value.problems} == {"KEY_REPEATED"}


# What is said beside the function


def test_kohyas_header_says_training_base_and_licence(tmp_path: Path) -> None:
    notes = read(Path(__file__).parent / "data" / "kohya-bert-lycoris", "bert", tmp_path).notes
    assert notes["producer"] == "kohya"
    assert notes["training"] == "lora_plus"
    assert notes["licence"] == "apache-2.0"
    assert notes["renamed"] == "kohya_flattened"


@pytest.mark.parametrize(
    ("metadata", "training"),
    [
        ({"ss_network_module": "networks.lora_fa"}, "lora_fa"),
        ({"ss_network_module": "networks.lora"}, "lora"),
        ({"ss_network_module": "networks.lora", "ss_network_args": '{"loraplus_lr_ratio": "1"}'}, "lora"),
        ({"ss_network_module": "networks.lora", "ss_network_args": '{"loraplus_unet_lr_ratio": "16"}'}, "lora_plus"),
        ({"ss_network_module": "networks.lora", "ss_network_args": "{broken"}, "lora"),
        ({}, "not_verified"),
    ],
)
def test_training_that_the_file_does_not_say_is_not_verified(
    metadata: dict[str, str], training: str, tmp_path: Path
) -> None:
    directory = tmp_path / "adapter"
    directory.mkdir()
    grammars.kohya_gemma(directory)
    tensors(directory, lambda _: None, metadata)
    assert read(directory, "gemma", tmp_path).notes["training"] == training


def test_moved_bytes_and_renamed_modules_are_recorded_by_the_name_of_their_rule(tmp_path: Path) -> None:
    rules = {}
    for producer, base, write in (("nemo", "llama", nemo), ("torchtune", "mistral", tune), ("mlx", "phi", mlx)):
        directory, scratch = tmp_path / producer, tmp_path / f"{producer}-scratch"
        directory.mkdir()
        scratch.mkdir()
        write(directory)
        notes = read(directory, base, scratch).notes
        rules[producer] = (notes.get("renamed"), notes["rearranged"])
    assert rules == {
        "nemo": ("nemo_to_hub", "nemo_unfused"),
        "torchtune": ("torchtune_to_hub", "torchtune_rotary_halves"),
        "mlx": (None, "mlx_transposed"),
    }


def test_snapshots_of_a_run_are_named_and_not_kept(tmp_path: Path) -> None:
    reading = read(Path(__file__).parent / "data" / "mlx-llama-lora", "llama", tmp_path)
    assert reading.notes["snapshots"] == ("0000100_adapters.safetensors",)
    assert "0000100_adapters.safetensors" not in {file.path for file in reading.files}


def test_an_adapter_in_shards_is_the_adapter_in_one_file(tmp_path: Path) -> None:
    digests = set()
    for name, write in (("whole", grammars.unsloth), ("shards", grammars.sharded)):
        directory, scratch = tmp_path / name, tmp_path / f"{name}-scratch"
        directory.mkdir()
        scratch.mkdir()
        write(directory)
        digests.add(read(directory, "llama", scratch).manifest.digest)
    assert len(digests) == 1


def test_two_packings_of_the_same_numbers_are_one_adapter(tmp_path: Path) -> None:
    """NeMo's fused adapter and its own unfused form, with the rows the reader took out of it."""
    fused, plain_form = tmp_path / "fused", tmp_path / "plain"
    for directory in (fused, plain_form):
        directory.mkdir()
    grammars.nemo_fused(fused)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = read(fused, "llama", tmp_path / "a")
    arrays = load_file(fused / "model_weights.safetensors")
    kept = {name: array for name, array in arrays.items() if "kqv" not in name}
    for layer in range(LAYERS):
        key = f"model.decoder.layers.{layer}.self_attention.adapter_layer.lora_"
        inner, out = (arrays[f"{key}kqv_adapter.linear_{side}.weight"] for side in ("in", "out"))
        heads = out.reshape(GROUPS, HEADS // GROUPS + 2, HEAD_DIM, 2)
        for name, part in (("q", heads[:, :-2]), ("k", heads[:, -2]), ("v", heads[:, -1])):
            kept[f"{key}unfused_kqv_adapter.{name}_adapter.linear_in.weight"] = inner
            kept[f"{key}unfused_kqv_adapter.{name}_adapter.linear_out.weight"] = np.ascontiguousarray(
                part.reshape(-1, 2)
            )
    save_file(kept, plain_form / "model_weights.safetensors")
    (plain_form / "model_config.yaml").write_text((fused / "model_config.yaml").read_text())
    assert read(plain_form, "llama", tmp_path / "b").manifest.digest == first.manifest.digest
