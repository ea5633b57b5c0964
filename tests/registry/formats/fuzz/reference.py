"""A slow, simple reader of small adapter directories, written apart from the product's: a delta a weight, or a refusal.

It reads whole files into NumPy arrays and multiplies. It knows the formulas and the few settings of the seeds; a
setting beyond them raises `BeyondError`, which says nothing about the directory.
"""

from __future__ import annotations

import re
from math import sqrt
from typing import Any, Final

import yaml
from numpy.typing import NDArray

from tests.registry.formats.fuzz.arrays import (
    Array,
    BeyondError,
    RejectError,
    loads,
    metadata,
    need,
    number,
    product,
    sort,
    tensors,
)  # fmt: skip

Deltas = dict[tuple[str, int | None], Array]
PICKLES: Final = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
QUIET: Final = frozenset({
    "auto_mapping", "base_model_name_or_path", "inference_mode", "lora_dropout", "peft_version", "revision",
    "task_type", "eva_config", "fan_in_fan_out", "megatron_core", "qalora_group_size", "runtime_config",
})  # fmt: skip
OFF: Final = frozenset({
    "modules_to_save", "layers_to_transform", "layers_pattern", "exclude_modules", "lora_bias", "use_qalora",
    "trainable_token_indices", "target_parameters", "alora_invocation_tokens", "kasa_config", "corda_config",
    "loftq_config", "layer_replication", "megatron_config", "arrow_config", "init_lora_weights",
})  # fmt: skip
MLX_SEMANTIC: Final = frozenset({"fine_tune_type", "lora_layers", "lora_parameters", "num_layers", "use_dora"})
MLX_QUIET: Final = frozenset({
    "adapter_path", "batch_size", "data", "grad_checkpoint", "iters", "learning_rate", "lr_schedule", "mask_prompt",
    "model", "optimizer", "optimizer_config", "report_to", "save_every", "seed", "train",
})  # fmt: skip


def deltas(files: dict[str, bytes], weights: dict[str, NDArray[Any]], model: dict[str, Any]) -> Deltas:
    """Every change of a weight, in the layout of the weight, by module and expert.

    Raises:
        RejectError: nothing, or two things.
        BeyondError: a setting this reader does not know.
    """
    need(not any(name.endswith(PICKLES) for name in files))
    found = _read(files, model)
    for (module, _), delta in found.items():
        need(f"{module}.weight" in weights)
        need(weights[f"{module}.weight"].shape == delta.shape)
    need(found)
    return found


def _read(files: dict[str, bytes], model: dict[str, Any]) -> Deltas:
    config = loads(files["adapter_config.json"]) if "adapter_config.json" in files else None
    need(config is None or isinstance(config, dict))
    if config is None or "pytorch_lora_weights.safetensors" in files:
        if "model_config.yaml" in files:
            return _nemo(files, model)
        arrays = _only(files)
        if any(name.startswith("text_encoder.") for name in arrays):
            return _diffusers(files, arrays)
        return _kohya(arrays, model)
    forked = "adapter_model.safetensors" in files
    if forked and config.get("lora_nums") is not None:
        return _routed(config, _only(files))
    if forked and ("r_sum" in config or "save_loranew" in config):
        return _olora(config, _only(files))
    if "lora_parameters" in config and "peft_type" not in config:
        return _mlx(config, tensors(files["adapters.safetensors"]))
    arrays = _only(files) if forked else _shards(files)
    if set(config) <= {"r", "lora_alpha", "target_modules", "peft_type", "base_model_name_or_path"} and any(
        ".lora_a." in name for name in arrays
    ):
        return _torchtune(config, arrays, model)
    return _peft(config, arrays)


def _only(files: dict[str, bytes]) -> dict[str, Array]:
    names = [name for name in files if name.endswith(".safetensors")]
    need(len(names) == 1)
    return tensors(files[names[0]])


def _shards(files: dict[str, bytes]) -> dict[str, Array]:
    (index,) = [name for name in files if name.endswith("index.json")]
    places = loads(files[index])["weight_map"]
    found: dict[str, Array] = {}
    for file in set(places.values()):
        need(file in files)
        for name, array in tensors(files[file]).items():
            need(places.get(name) == file)
            found[name] = array
    need(found.keys() == places.keys())
    need({name for name in files if name.endswith(".safetensors")} == set(places.values()))
    return found


def _peft(config: dict[str, Any], arrays: dict[str, Array]) -> Deltas:
    for key, value in config.items():
        if key in OFF and value and not (key == "init_lora_weights" and value in (True, "gaussian")):
            raise BeyondError
        need(key in QUIET | OFF | _PEFT_FIELDS or not value)
    need(config.get("peft_type") in ("LORA", None, ""))
    if config.get("bias", "none") not in ("none", None) or not isinstance(config.get("target_modules"), list):
        raise BeyondError
    modules = sort(
        arrays,
        r"base_model\.model\.(?P<module>.+)\.(?P<role>lora_[AB]\.weight|lora_embedding_[AB]|lora_magnitude_vector)",
    )
    found: Deltas = {}
    for module, roles in modules.items():
        need(("lora_magnitude_vector" in roles) == bool(config.get("use_dora")))
        table = "lora_embedding_A" in roles
        sides = ("lora_embedding_A", "lora_embedding_B") if table else ("lora_A.weight", "lora_B.weight")
        need(set(sides) == roles.keys() - {"lora_magnitude_vector"})
        a, b = (roles[side] for side in sides)
        rank, alpha = (
            _pattern(config, "rank_pattern", module, "r"),
            _pattern(config, "alpha_pattern", module, "lora_alpha"),
        )
        need(a.shape[0] == rank)
        need(any(module == name or module.endswith(f".{name}") for name in config["target_modules"]))
        scale = alpha / (sqrt(rank) if config.get("use_rslora") else rank)
        delta = scale * product(a, b)
        # PEFT corrects fan_in_fan_out by the layer it finds: only Conv1D stores its input first.
        conv1d = module.rpartition(".")[2] in {"c_attn", "c_fc", "c_proj"}
        found[module, None] = delta.T if table or conv1d else delta
    return found


_PEFT_FIELDS: Final = frozenset({
    "alpha_pattern", "bias", "lora_alpha", "peft_type", "r", "rank_pattern", "target_modules",
    "use_dora", "use_rslora", "ensure_weight_tying",
})  # fmt: skip


def _pattern(config: dict[str, Any], key: str, module: str, default: str) -> float:
    values = {value for name, value in (config.get(key) or {}).items() if re.match(rf"(.*\.)?({name})$", module)}
    need(len(values) < 2)
    return number(values.pop() if values else config.get(default))


def _mlx(config: dict[str, Any], arrays: dict[str, Array]) -> Deltas:
    need(not any(value and key not in MLX_SEMANTIC | MLX_QUIET for key, value in config.items()))
    parameters = config["lora_parameters"]
    need(isinstance(parameters, dict))
    kind = config.get("fine_tune_type") or ("dora" if config.get("use_dora") else "lora")
    need(kind in ("lora", "dora"))
    rank, scale = number(parameters.get("rank")), number(parameters.get("scale"))
    need(parameters.get("alpha") in (None, rank))
    need(not any(v and k not in {"rank", "scale", "alpha", "dropout", "keys"} for k, v in parameters.items()))
    found: Deltas = {}
    for module, roles in sort(arrays, r"(?P<module>.+)\.(?P<role>lora_a|lora_b|m)").items():
        need(roles.keys() == {"lora_a", "lora_b"} | ({"m"} if kind == "dora" else set()))
        need(roles["lora_a"].shape[-1] == rank)
        delta = scale * product(roles["lora_b"], roles["lora_a"])
        turned = module.startswith("model.h.") or module.endswith("embed_tokens")
        found[re.sub(r"^model\.h\.", "transformer.h.", module), None] = delta if turned else delta.T
    return found


def _torchtune(config: dict[str, Any], arrays: dict[str, Array], model: dict[str, Any]) -> Deltas:
    names = {"output_proj": "o_proj", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    rank, alpha = number(config.get("r")), number(config.get("lora_alpha"))
    need(config.get("peft_type") in ("LORA", None))
    found: Deltas = {}
    modules = sort(arrays, r"(?P<module>.+)\.(?P<role>lora_[ab]\.weight|magnitude)")
    dora = any("magnitude" in roles for roles in modules.values())
    for module, roles in modules.items():
        need(roles.keys() == {"lora_a.weight", "lora_b.weight"} | ({"magnitude"} if dora else set()))
        a, b = roles["lora_a.weight"], roles["lora_b.weight"]
        need(a.shape[0] == rank)
        delta = alpha / rank * product(a, b)
        match = re.fullmatch(r"layers\.(\d+)\.(attn|mlp)\.(\w+)", module)
        if module == "output":
            found["lm_head", None] = delta
            continue
        need(match)
        assert match is not None
        leaf = names.get(match[3], match[3])
        heads = {"q_proj": model["num_attention_heads"], "k_proj": model["num_key_value_heads"]}.get(leaf)
        if heads and model["model_type"] != "qwen2":
            need(delta.shape[0] % (2 * heads) == 0)
            delta = delta.reshape(heads, -1, 2, delta.shape[1]).transpose(0, 2, 1, 3).reshape(delta.shape)
        part = "self_attn" if match[2] == "attn" else "mlp"
        found[f"model.layers.{int(match[1])}.{part}.{leaf}", None] = delta
    return found


def _kohya(arrays: dict[str, Array], model: dict[str, Any]) -> Deltas:
    found: Deltas = {}
    modules = sort(
        arrays, r"(?P<module>(?:lora_te\d?|lycoris)_[^.]+)\.(?P<role>lora_(?:up|down)\.weight|alpha|dora_scale)"
    )
    need(len({re.sub(r"^(lora_te\d?|lycoris)_.*", r"\1", name) for name in modules}) == 1)
    dora = any("dora_scale" in roles for roles in modules.values())
    for module, roles in modules.items():
        need({"lora_up.weight", "lora_down.weight"} <= roles.keys())
        need(("dora_scale" in roles) == dora)
        down = roles["lora_down.weight"]
        need(down.ndim == 2 and down.shape[0] > 0)
        alpha = float(roles["alpha"].reshape(())) if "alpha" in roles and roles["alpha"].size == 1 else down.shape[0]
        need("alpha" not in roles or (roles["alpha"].size == 1 and alpha != 0))
        flat = re.sub(r"^(lora_te\d?|lycoris)_", "", module)
        candidates = {name for name in model["modules"] if name.replace(".", "_") == flat}
        candidates |= {name for name in model["modules"] if name.removeprefix("model.").replace(".", "_") == flat}
        need(len(candidates) == 1)
        found[candidates.pop(), None] = alpha / down.shape[0] * product(down, roles["lora_up.weight"])
    return found


def _diffusers(files: dict[str, bytes], arrays: dict[str, Array]) -> Deltas:
    (name,) = [name for name in files if name.endswith(".safetensors")]
    said = loads(metadata(files[name]).get("lora_adapter_metadata", "{}"))
    config = {
        key.removeprefix("text_encoder."): value for key, value in said.items() if key.startswith("text_encoder.")
    }
    spellings = {
        ".lora_linear_layer.down.weight": ".lora_A.weight", ".lora_linear_layer.up.weight": ".lora_B.weight",
        ".lora.down.weight": ".lora_A.weight", ".lora.up.weight": ".lora_B.weight",
        ".lora_magnitude_vector.weight": ".lora_magnitude_vector",
    }  # fmt: skip
    renamed: dict[str, Array] = {}
    for key, array in arrays.items():
        name_now = key
        for old, new in spellings.items():
            if key.endswith(old):
                name_now = key.removesuffix(old) + new
        need(name_now not in renamed)
        renamed[name_now] = array
    modules = sort(renamed, r"text_encoder\.(?P<module>.+)\.(?P<role>lora_[AB]\.weight|lora_magnitude_vector|alpha)")
    if config:
        need(not any("alpha" in roles for roles in modules.values()))
        plain = {f"base_model.model.{key.removeprefix('text_encoder.')}": array for key, array in renamed.items()}
        return _peft(config, plain)
    found: Deltas = {}
    for module, roles in modules.items():
        need({"lora_A.weight", "lora_B.weight"} <= roles.keys())
        need(roles["lora_A.weight"].ndim == 2 and len(roles["lora_A.weight"]))
        scale = float(roles["alpha"].reshape(())) / len(roles["lora_A.weight"]) if "alpha" in roles else 1.0
        found[module, None] = scale * product(roles["lora_A.weight"], roles["lora_B.weight"])
    return found


def _nemo(files: dict[str, bytes], model: dict[str, Any]) -> Deltas:
    try:
        config = yaml.safe_load(files["model_config.yaml"])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RejectError from error
    need(isinstance(config, dict))
    tuning = config["peft"]["lora_tuning"]
    need(
        config.get("tensor_model_parallel_size") in (1, None)
        and config.get("pipeline_model_parallel_size") in (1, None)
    )
    heads, dim = number(config.get("num_attention_heads")), number(tuning.get("adapter_dim"))
    groups = number(heads if config.get("num_query_groups") is None else config["num_query_groups"])
    width = config.get("kv_channels") or config["hidden_size"] // heads
    need((heads, groups, width) == (model["num_attention_heads"], model["num_key_value_heads"], model["head_dim"]))
    heads, groups = int(heads), int(groups)
    scale = number(dim if tuning.get("alpha") is None else tuning["alpha"]) / dim
    found: Deltas = {}
    layer = r"model\.(?:decoder|language_model\.encoder)\.layers\.(\d+)\.(?:self_attention|mlp)\.adapter_layer\.(\S+)"
    single = {"lora_dense_attention_adapter": "self_attn.o_proj", "lora_4htoh_adapter": "mlp.down_proj"}
    single |= {f"lora_unfused_kqv_adapter.{c}_adapter": f"self_attn.{c}_proj" for c in "qkv"}
    for module, roles in sort(_only(files), r"(?P<module>.+)\.(?P<role>linear_(?:in|out)\.weight)").items():
        need(roles.keys() == {"linear_in.weight", "linear_out.weight"} and roles["linear_in.weight"].shape[0] == dim)
        whole = scale * product(roles["linear_in.weight"], roles["linear_out.weight"])
        match = re.fullmatch(layer, module)
        need(match)
        assert match is not None
        place, columns = f"model.layers.{int(match[1])}", whole.shape[1]
        if match[2] == "lora_kqv_adapter":
            need(whole.shape[0] == (heads + 2 * groups) * width)
            grouped = whole.reshape(groups, heads // groups + 2, -1, columns)
            parts = {
                "self_attn.q_proj": grouped[:, :-2],
                "self_attn.k_proj": grouped[:, -2],
                "self_attn.v_proj": grouped[:, -1],
            }
        elif match[2] == "lora_hto4h_adapter":
            half = len(whole) // 2
            parts = {"mlp.gate_proj": whole[:half], "mlp.up_proj": whole[half:]}
        else:
            need(match[2] in single)
            parts = {single[match[2]]: whole}
        for leaf, part in parts.items():
            need((f"{place}.{leaf}", None) not in found)
            found[f"{place}.{leaf}", None] = part.reshape(-1, columns)
    return found


def _routed(config: dict[str, Any], arrays: dict[str, Array]) -> Deltas:
    config, count = _fork(config, "lora_nums")
    scale = number(config.get("lora_alpha")) / number(config.get("r"))
    found: Deltas = {}
    for module, roles in sort(
        arrays, r"base_model\.model\.(?P<module>.+)\.lora_(?P<role>[AB]\d*|route)\.weight"
    ).items():
        shared = "A" in roles
        sides = {f"B{n}" for n in range(count)} | ({"A"} if shared else {f"A{n}" for n in range(count)})
        need(roles.keys() == sides | {"route"})
        for expert in range(count):
            a = roles["A" if shared else f"A{expert}"]
            need(len(a) == config["r"] and roles["route"].shape == (count, a.shape[1]))
            found[module, expert] = scale * product(a, roles[f"B{expert}"])
    return found


def _fork(config: dict[str, Any], key: str) -> tuple[dict[str, Any], int]:
    """PEFT's part of a fork's config, and the fork's own count."""
    own = {"lora_nums", "blc_alpha", "blc_weight", "merge_weights", "enable_lora", "r_sum", "save_loranew"}
    need(not config.get("enable_lora"))
    count = config.get(key) or 0
    need(type(count) is int)
    plain = {name: value for name, value in config.items() if name not in own}
    known = QUIET | OFF | _PEFT_FIELDS
    for name, value in plain.items():
        need(name in known or not value)
        if value and name in (OFF | {"alpha_pattern", "rank_pattern", "use_dora", "use_rslora"}):
            raise BeyondError
    need(plain.get("peft_type") in ("LORA", None, ""))
    return plain, count


def _olora(config: dict[str, Any], arrays: dict[str, Array]) -> Deltas:
    config, earlier = _fork(config, "r_sum")
    rank = config.get("r")
    scale = number(config.get("lora_alpha")) / number(rank)
    found: Deltas = {}
    modules = sort(arrays, r"base_model\.model\.(?P<module>.+)\.(?P<role>lora(?:new)?_[AB])\.weight")
    apart = any("loranew_A" in roles for roles in modules.values())
    for module, roles in modules.items():
        need(roles.keys() == {"lora_A", "lora_B"} | ({"loranew_A", "loranew_B"} if apart else set()))
        need(len(roles["lora_A"]) == roles["lora_B"].shape[1] == earlier)
        delta = roles["lora_B"] @ roles["lora_A"]
        if apart:
            need(len(roles["loranew_A"]) == rank)
            delta = delta + product(roles["loranew_A"], roles["loranew_B"])
        found[module, None] = scale * delta
    return found
