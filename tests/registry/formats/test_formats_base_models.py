"""Every listed architecture against transformers: its defaults, its spellings, its layers and its packaging."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig
from transformers.pytorch_utils import Conv1D

from registry.errors import RefusedError
from registry.formats import read_base
from registry.formats.base.config import read_architecture
from registry.formats.base.modules import layers
from registry.formats.base.naming import MODEL_TYPES, loaded_name
from registry.formats.base.types import CONFIG_TYPES
from schemas.architectures import KnownArchitecture
from tests.registry.formats.models import TINY, model, save, saved

TYPES: Final = sorted(TINY)
DERIVED: Final = frozenset({
    "head_dim", "image_size", "layer_types", "mlp_only_layers", "n_inner", "patch_size", "position_embedding_type",
    "rope", "rope_local", "sliding_window", "use_bidirectional_attention",
})  # fmt: skip
"""Fields that transformers holds in another form; each has a test of its own."""


def test_every_listed_type_has_a_tiny_model_and_names() -> None:
    assert CONFIG_TYPES.keys() == MODEL_TYPES.keys() == TINY.keys()


@pytest.mark.parametrize("model_type", TYPES)
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    found, theirs = read_architecture({"model_type": model_type}), AutoConfig.for_model(model_type)
    for name in type(found).model_fields.keys() - DERIVED:
        assert getattr(found, name) == getattr(theirs, name), name
    if "rope" in type(found).model_fields:
        assert ropes(found) == expected_ropes(theirs)


def ropes(found: KnownArchitecture) -> list[dict[str, Any]]:
    present = [getattr(found, name) for name in ("rope", "rope_local") if hasattr(found, name)]
    return [{"rope_type": rope.rope_type, "rope_theta": rope.rope_theta, **rope.parameters} for rope in present]


def expected_ropes(theirs: Any) -> list[dict[str, Any]]:
    whole = {"partial_rotary_factor": 1.0}.items()
    given = theirs.rope_parameters
    nested = [given[key] for key in ("full_attention", "sliding_attention") if key in given] or [given]
    return [dict(rope.items() - whole) for rope in nested]


@pytest.mark.parametrize("model_type", TYPES)
def test_derived_fields_are_those_the_model_runs_with(model_type: str) -> None:
    found, made = read_architecture(given(model_type)), model(model_type, head=False)
    if hasattr(found, "head_dim"):
        assert found.head_dim == made.layers[0].self_attn.head_dim
    if hasattr(found, "layer_types"):
        assert list(found.layer_types) == made.config.layer_types
    if hasattr(found, "mlp_only_layers"):
        assert list(found.mlp_only_layers) == made.config.mlp_only_layers
    if hasattr(found, "sliding_window"):
        slides = "sliding_attention" in getattr(found, "layer_types", ("sliding_attention",))
        assert found.sliding_window == ((made.config.sliding_window or None) if slides else None)
    if model_type == "gpt2":
        assert read_architecture(given("gpt2")).model_dump()["n_inner"] == made.h[0].mlp.c_fc.nf
    if model_type == "vit":
        assert found.model_dump()["image_size"] == made.embeddings.patch_embeddings.image_size


def given(model_type: str, **config: Any) -> dict[str, Any]:
    return {"model_type": model_type, **(dict(TINY[model_type]) | config)}


@pytest.mark.parametrize("model_type", TYPES)
def test_a_config_left_short_and_one_written_out_are_one_architecture(model_type: str) -> None:
    written = json.loads((saved(model_type) / "config.json").read_text())
    assert len(written) > len(given(model_type))
    assert read_architecture(written) == read_architecture(given(model_type))


@pytest.mark.parametrize("model_type", TYPES)
def test_each_semantic_field_is_another_architecture(model_type: str) -> None:
    plain = read_architecture(sliding(model_type))
    fields = plain.model_dump()
    for name in fields.keys() - {"model_type", "rope", "rope_local", "layer_types"}:
        changed = sliding(model_type, **{name: another(name, fields[name])})
        found = read_architecture(changed)
        assert found.model_dump()[name] != fields[name], name
        assert found.document() != plain.document()
    if "rope" in fields:
        assert read_architecture(sliding(model_type, rope_theta=123.0)) != plain
    if "layer_types" in fields:
        full = ["full_attention"] * len(fields["layer_types"])
        assert read_architecture(sliding(model_type, layer_types=full)) != plain


def sliding(model_type: str, **config: Any) -> dict[str, Any]:
    """The tiny config, with the window in use where a model type must be asked for it."""
    window = {"use_sliding_window": True, "max_window_layers": 1} if model_type.startswith("qwen") else {}
    return given(model_type, **window, **config)


def another(name: str, value: Any) -> Any:
    if name == "sliding_window":
        return 7
    if name == "position_embedding_type":
        return "relative_key"
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return "relu"
    if isinstance(value, tuple):
        return [4, 2] if name.endswith("_size") else [0]
    return 3 if value is None else value * 2 + 1


def same_for_transformers(model_type: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    first, second = (AutoConfig.for_model(model_type, **doc).to_dict() for doc in (one, other))
    ignored = {"_sliding_window_pattern", "sliding_window_pattern", "max_window_layers", "use_sliding_window"}
    return {key: first[key] for key in first.keys() - ignored} == {key: second[key] for key in second.keys() - ignored}


MIXED: Final = ["full_attention", "sliding_attention"]
LONG: Final = {"short_factor": [1.0] * 2, "long_factor": [2.0] * 2}
EQUAL: Final[list[tuple[str, dict[str, Any], dict[str, Any]]]] = [
    ("mistral", {"rope_theta": 5e5}, {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}),
    ("mistral", {"head_dim": None, "num_key_value_heads": 8}, {"head_dim": 128}),
    ("qwen2", {"sliding_window": 5, "use_sliding_window": False}, {"sliding_window": None}),
    ("qwen2", {"sliding_window": 131072, "max_window_layers": 70}, {}),
    ("qwen2", {"num_hidden_layers": 2, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
     {"num_hidden_layers": 2, "use_sliding_window": True, "sliding_window": 5, "layer_types": MIXED}),
    ("qwen3", {"rope_scaling": {"type": "yarn", "factor": 4.0}},
     {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "type": "yarn", "rope_theta": 10000.0,
                          "original_max_position_embeddings": 32768}}),
    ("qwen3_moe", {"num_experts": 3}, {"num_local_experts": 3}),
    ("gemma", {"hidden_act": "gelu"}, {"hidden_act": "gelu_pytorch_tanh"}),
    ("gemma3_text", {"num_hidden_layers": 2, "sliding_window_pattern": 2},
     {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}),
    ("gemma3_text", {"rope_theta": 5.0, "rope_local_base_freq": 6.0},
     {"rope_parameters": {"full_attention": {"rope_theta": 5.0, "rope_type": "default"},
                          "sliding_attention": {"rope_theta": 6.0, "rope_type": "default"}}}),
    ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
     {"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
                          "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}}),
    ("gemma3_text", {"use_bidirectional_attention": True, "sliding_window": 8},
     {"use_bidirectional_attention": True, "sliding_window": 9}),
    ("gpt2", {"hidden_size": 24, "num_hidden_layers": 3}, {"n_embd": 24, "n_layer": 3}),
    ("distilbert", {"hidden_size": 24, "num_attention_heads": 3}, {"dim": 24, "n_heads": 3}),
    ("phi", {}, {"partial_rotary_factor": 0.5}),
    ("phi", {"rope_theta": 5.0, "partial_rotary_factor": 0.4},
     {"rope_parameters": {"rope_theta": 5.0, "partial_rotary_factor": 0.4}}),
    ("vit", {}, {"pooler_output_size": 768}),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "one", "other"), EQUAL)
def test_what_transformers_takes_as_equal_is_one_architecture(
    model_type: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert same_for_transformers(model_type, one, other)
    first, second = (read_architecture({"model_type": model_type, **doc}) for doc in (one, other))
    assert first == second
    assert first.document() == second.document()


def test_names_phi3_had_for_long_rope_are_one_thing() -> None:
    small = given("phi3", head_dim=None, num_attention_heads=2)
    kinds = [read_architecture(small | {"rope_scaling": {"type": kind, **LONG}}) for kind in ("su", "yarn", "longrope")]
    assert kinds[0] == kinds[1] == kinds[2]
    assert kinds[0].model_dump()["rope"]["parameters"]["original_max_position_embeddings"] == 4096.0


REFUSED: Final[list[tuple[str, dict[str, Any], str, str]]] = [
    ("mistral", {"layer_types": ["full_attention"]}, "layer_types", "CONFIG_KEY_UNKNOWN"),
    ("qwen2", {"num_hidden_layers": 2, "layer_types": ["full_attention"]}, "layer_types", "CONFIG_FIELD_VALUE"),
    ("qwen2", {"num_hidden_layers": 1, "layer_types": ["spiral_attention"]}, "layer_types", "CONFIG_FIELD_VALUE"),
    ("qwen2", {"num_hidden_layers": 10**9}, "num_hidden_layers", "CONFIG_FIELD_VALUE"),
    ("qwen3_moe", {"num_experts": 3, "num_local_experts": 4}, "num_local_experts", "CONFIG_FIELD_CONFLICT"),
    ("qwen2_moe", {"mlp_only_layers": ["1"]}, "mlp_only_layers", "CONFIG_FIELD_TYPE"),
    ("gemma", {"hidden_activation": "relu"}, "hidden_activation", "CONFIG_FIELD_CONFLICT"),
    ("gemma3_text", {"rope_parameters": {"rope_theta": 1.0}}, "rope_theta", "CONFIG_KEY_UNKNOWN"),
    ("gpt2", {"summary_type": "mean"}, "summary_type", "CONFIG_KEY_UNKNOWN"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention", "CONFIG_KEY_UNKNOWN"),
    ("roberta", {"is_decoder": True}, "is_decoder", "CONFIG_KEY_UNKNOWN"),
    ("vit", {"image_size": [8]}, "image_size", "CONFIG_FIELD_TYPE"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor", "CONFIG_KEY_UNKNOWN"),
    ("phi3", {"interpolate_factor": 2}, "interpolate_factor", "CONFIG_KEY_UNKNOWN"),
]


@pytest.mark.parametrize(("model_type", "config", "key", "code"), REFUSED)
def test_what_is_not_understood_is_refused_by_its_key(
    model_type: str, config: dict[str, Any], key: str, code: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        read_architecture({"model_type": model_type, **config})
    assert [(problem.path[-1], problem.code) for problem in caught.value.problems] == [(key, code)]


def classes(made: Any) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Module or parameter name, kind by its class, and weight shape, of everything with two dimensions or more."""
    kinds = {torch.nn.Linear: "linear", Conv1D: "conv1d", torch.nn.Conv2d: "conv2d", torch.nn.Embedding: "embedding"}
    for name, module in made.named_modules():
        kind = next((kind for kind_of, kind in kinds.items() if isinstance(module, kind_of)), None)
        for leaf, parameter in module.named_parameters(recurse=False):
            if kind is not None and leaf == "weight":
                yield name, kind, tuple(parameter.shape)
            elif parameter.ndim > 1:
                yield f"{name}.{leaf}".removeprefix("."), "parameter", tuple(parameter.shape)


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("model_type", TYPES)
def test_layers_are_the_modules_of_the_model(model_type: str, head: bool) -> None:
    made = model(model_type, head=head)
    base = read_base(saved(model_type, head=head), evidence="structural").manifest
    found = {loaded_name(model_type, name): layer for name, layer in layers(base).items()}
    routers = {name.removesuffix(".weight") for name, kind, _ in classes(made) if name.endswith("gate.weight")}
    expected = {name.removesuffix(".weight") if name.removesuffix(".weight") in routers else name: (kind, shape)
                for name, kind, shape in classes(made)}  # fmt: skip
    assert expected.keys() == {name for name, layer in found.items() if not (layer.optional and ".experts." in name)}
    for name, (kind, shape) in expected.items():
        assert found[name].shape == shape, name
        assert found[name].kind == kind or (name in routers and found[name].optional), name


@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_stacked_experts_name_their_matrices_in_stacking_order(model_type: str) -> None:
    directory = saved(model_type)
    base, stored = read_base(directory, evidence="structural").manifest, load_file(directory / "model.safetensors")
    parameters = dict(model(model_type).named_parameters())
    stacks = {name: layer for name, layer in layers(base).items() if layer.kind == "parameter" and "experts" in name}
    assert stacks
    for name, layer in stacks.items():
        rows = np.concatenate([stored[weight] for weight in layer.weights])
        np.testing.assert_array_equal(rows.reshape(layer.shape), parameters[name].detach().numpy())


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "mixtral", "qwen3", "vit"])
def test_other_shards_of_the_same_weights_are_one_base(model_type: str, tmp_path: Path) -> None:
    made = model(model_type)
    single = read_base(saved(model_type)).manifest
    sharded = read_base(save(made, tmp_path / "shards", max_shard_size=900), jobs=2)
    again = tmp_path / "again"
    again.mkdir()
    (again / "config.json").write_bytes((saved(model_type) / "config.json").read_bytes())
    save_file(dict(reversed(load_file(saved(model_type) / "model.safetensors").items())), again / "model.safetensors")
    assert sum(file.path.endswith(".safetensors") for file in sharded.files) > 2
    assert sharded.manifest.canonical() == single.canonical() == read_base(again).manifest.canonical()


@pytest.mark.parametrize("model_type", [name for name in TYPES if MODEL_TYPES[name].tied])
def test_a_tied_output_is_the_table_once(model_type: str, tmp_path: Path) -> None:
    made = model(model_type, tie_word_embeddings=True)
    directory = save(made, tmp_path)
    once = read_base(directory).manifest
    stored = load_file(directory / "model.safetensors")
    for copy, original in MODEL_TYPES[model_type].tied.items():
        stored[copy] = stored[original].copy()
    save_file(stored, directory / "model.safetensors")
    assert read_base(directory).manifest == once
    output = MODEL_TYPES[model_type].outputs[0]
    assert layers(once)[output].weights == (MODEL_TYPES[model_type].tied[f"{output}.weight"],)
    assert layers(once)[output].kind == "linear"


def test_masks_that_old_releases_of_gpt2_store_are_no_weights(tmp_path: Path) -> None:
    directory = save(model("gpt2"), tmp_path)
    plain = read_base(directory).manifest
    stored: dict[str, Any] = load_file(directory / "model.safetensors")
    stored |= {
        "transformer.h.0.attn.bias": np.ones((1, 1, 16, 16), bool),
        "transformer.h.0.attn.masked_bias": np.full(1, -1e4, np.float32),
    }
    save_file(stored, directory / "model.safetensors")
    assert read_base(directory).manifest == plain


def test_null_key_value_heads_are_one_for_each_head() -> None:
    found = read_architecture({"model_type": "mistral", "num_key_value_heads": None})
    assert found.model_dump()["num_key_value_heads"] == 32
