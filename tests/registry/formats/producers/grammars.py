"""Directories rebuilt from producers' key grammars with seeded numbers, for producers that do not run here.

Each function writes one directory. `EXPECTED` has for each an independent computation of the weights after the adapter,
by the producer's own formula, from the numbers in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.registry.formats.producers.bases import (
    GROUPS,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    WIDE,
    Arrays,
)  # fmt: skip

Deltas = dict[str, NDArray[Any]]
ROWS: Final = HEADS * HEAD_DIM
KEYS: Final = GROUPS * HEAD_DIM


class Draw:
    """Seeded matrices."""

    def __init__(self, seed: int, dtype: str = "float32") -> None:
        self._random = np.random.default_rng(seed)
        self._dtype = np.dtype(dtype)

    def __call__(self, *shape: int) -> NDArray[Any]:
        return self._random.standard_normal(shape).astype(self._dtype)


def dump(path: Path, document: object) -> None:
    """A JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


# kohya: lora_down [r, in], lora_up [out, r], alpha / r


def kohya(
    directory: Path,
    prefix: str,
    modules: dict[str, tuple[int, int]],
    alpha: NDArray[Any] | None,
    dtype: str = "float32",
) -> Deltas:
    """Flattened names; a module's delta is alpha / r * up @ down, or up @ down without an alpha."""
    draw, arrays, deltas = Draw(1, dtype), dict[str, NDArray[Any]](), Deltas()
    for number, (module, (d_out, d_in)) in enumerate(modules.items()):
        rank, flat = 2 + number % 2, prefix + module.replace(".", "_")
        down, up = draw(rank, d_in), draw(d_out, rank)
        arrays |= {f"{flat}.lora_down.weight": down, f"{flat}.lora_up.weight": up}
        if alpha is not None:
            arrays[f"{flat}.alpha"] = alpha
        scale = 1.0 if alpha is None else float(alpha) / rank
        deltas[module] = scale * up.astype(np.float64) @ down.astype(np.float64)
    save_file(arrays, directory / "last.safetensors", {"ss_network_module": "networks.lora_fa"})
    return deltas


def kohya_gemma(directory: Path) -> Deltas:
    """A text encoder without the head model's prefix, in half precision."""
    modules = {"layers.0.self_attn.q_proj": (ROWS, WIDE), "layers.2.mlp.down_proj": (WIDE, INNER)}
    found = kohya(directory, "lora_te_", modules, np.array(4.0, "float16"), "float16")
    return {f"model.{name}": delta for name, delta in found.items()}


def kohya_without_alpha(directory: Path) -> Deltas:
    """An old file: no alpha is alpha = r."""
    modules = {
        "encoder.layer.0.attention.self.query": (HIDDEN, HIDDEN),
        "encoder.layer.1.output.dense": (HIDDEN, INNER),
    }
    return kohya(directory, "lora_te_", modules, None)


def kohya_whole_names(directory: Path) -> Deltas:
    """LyCORIS on a head model: the prefix is part of the flattened name."""
    modules = {"model.layers.1.mlp.up_proj": (INNER, WIDE), "lm_head": (11, WIDE)}
    return kohya(directory, "lycoris_", modules, np.array(3, "int64"))


# NeMo: linear_in [r, in], linear_out [out, r], alpha / dim; rows of q, k, v by query group


def nemo_config(alpha: float | None, **more: Any) -> dict[str, Any]:
    """model_config.yaml; JSON is YAML."""
    tuning = {"adapter_dim": 2, "adapter_dropout": 0.0, "variant": "nemo", "target_modules": ["all"], "alpha": alpha}
    return {
        "hidden_size": WIDE,
        "num_attention_heads": HEADS,
        "num_query_groups": GROUPS,
        "kv_channels": HEAD_DIM,
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "peft": {"peft_scheme": "lora", "lora_tuning": tuning | more},
    }


def unfused(fused: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Query, key and value rows of a fused product, as NeMo's converter reshapes it: [group, heads + k + v, dim]."""
    grouped = fused.reshape(GROUPS, HEADS // GROUPS + 2, HEAD_DIM, fused.shape[-1])
    parts = {"q_proj": grouped[:, :-2], "k_proj": grouped[:, -2:-1], "v_proj": grouped[:, -1:]}
    return {name: part.reshape(-1, fused.shape[-1]) for name, part in parts.items()}


def nemo_fused(directory: Path) -> Deltas:
    """All four adapters of Megatron core, fused."""
    draw, arrays, deltas = Draw(2), dict[str, NDArray[Any]](), Deltas()
    dump(directory / "model_config.yaml", nemo_config(8.0))
    adapters = {
        "self_attention.adapter_layer.lora_kqv_adapter": (ROWS + 2 * KEYS, WIDE),
        "self_attention.adapter_layer.lora_dense_attention_adapter": (WIDE, ROWS),
        "mlp.adapter_layer.lora_hto4h_adapter": (2 * INNER, WIDE),
        "mlp.adapter_layer.lora_4htoh_adapter": (WIDE, INNER),
    }
    for layer in range(LAYERS):
        place, products = f"model.layers.{layer}", []
        for name, (d_out, d_in) in adapters.items():
            a, b = draw(2, d_in), draw(d_out, 2)
            key = f"model.decoder.layers.{layer}.{name}"
            arrays |= {f"{key}.linear_in.weight": a, f"{key}.linear_out.weight": b}
            products.append(8.0 / 2 * b.astype(np.float64) @ a)
        qkv, dense, gated, down = products
        deltas |= {f"{place}.self_attn.{name}": part for name, part in unfused(qkv).items()}
        deltas[f"{place}.self_attn.o_proj"] = dense
        deltas[f"{place}.mlp.gate_proj"], deltas[f"{place}.mlp.up_proj"] = gated[:INNER], gated[INNER:]
        deltas[f"{place}.mlp.down_proj"] = down
    save_file(arrays, directory / "model_weights.safetensors")
    return deltas


def nemo_attention(directory: Path) -> Deltas:
    """The layout before Megatron core, attention only, on some layers, without an alpha: the scale is 1."""
    draw, arrays, deltas = Draw(3), dict[str, NDArray[Any]](), Deltas()
    config = nemo_config(None, target_modules=["attention_qkv"], layer_selection=[1, 3]) | {"hidden_size": HIDDEN}
    dump(directory / "model_config.yaml", config)
    for layer in (0, 2):
        a, b = draw(2, HIDDEN), draw(ROWS + 2 * KEYS, 2)
        key = f"model.language_model.encoder.layers.{layer}.self_attention.adapter_layer.lora_kqv_adapter"
        arrays |= {f"{key}.linear_in.weight": a, f"{key}.linear_out.weight": b}
        product = b.astype(np.float64) @ a
        deltas |= {f"model.layers.{layer}.self_attn.{name}": part for name, part in unfused(product).items()}
    save_file(arrays, directory / "model_weights.safetensors")
    return deltas


def nemo_canonical(directory: Path) -> Deltas:
    """NeMo's own unfused form."""
    draw, arrays, deltas = Draw(4), dict[str, NDArray[Any]](), Deltas()
    dump(directory / "model_config.yaml", nemo_config(1.0, variant="canonical", target_modules=["attention_qkv"]))
    for layer in range(LAYERS):
        for name, d_out in (("q", ROWS), ("k", KEYS), ("v", KEYS)):
            a, b = draw(2, WIDE), draw(d_out, 2)
            key = f"model.decoder.layers.{layer}.self_attention.adapter_layer.lora_unfused_kqv_adapter.{name}_adapter"
            arrays |= {f"{key}.linear_in.weight": a, f"{key}.linear_out.weight": b}
            deltas[f"model.layers.{layer}.self_attn.{name}_proj"] = 0.5 * b.astype(np.float64) @ a
    save_file(arrays, directory / "model_weights.safetensors")
    return deltas


# mlx-lm: scale * (lora_a @ lora_b)^T


def mlx_old(directory: Path) -> Deltas:
    """A release before 0.20: lora_layers, and an alpha equal to the rank; on Phi, in bfloat16-free half precision."""
    draw, arrays, deltas = Draw(5, "float16"), dict[str, NDArray[Any]](), Deltas()
    parameters = {"rank": 2, "alpha": 2.0, "dropout": 0.0, "scale": 10.0}
    dump(directory / "adapter_config.json", {"lora_layers": 2, "lora_parameters": parameters, "model": "phi"})
    for layer in (1, 2):
        for leaf, d_out, d_in in (("self_attn.dense", WIDE, ROWS), ("mlp.fc1", INNER, WIDE)):
            module = f"model.layers.{layer}.{leaf}"
            a, b = draw(d_in, 2), draw(2, d_out)
            arrays |= {f"{module}.lora_a": a, f"{module}.lora_b": b}
            deltas[module] = 10.0 * (a.astype(np.float64) @ b).T
    save_file(arrays, directory / "adapters.safetensors")
    return deltas


# torchtune: q and k rows in pairs where the hub's are in halves


def torchtune_mistral(directory: Path) -> Deltas:
    """Its own keys on a model whose heads are wider than hidden_size / heads."""
    draw, arrays, deltas = Draw(6), dict[str, NDArray[Any]](), Deltas()
    config = {"r": 2, "lora_alpha": 5, "target_modules": ["k_proj", "output_proj", "w2"], "peft_type": "LORA"}
    dump(directory / "adapter_config.json", config)
    for layer in range(LAYERS):
        for own, hub, d_out, d_in in (
            ("attn.k_proj", "self_attn.k_proj", KEYS, HIDDEN),
            ("attn.output_proj", "self_attn.o_proj", HIDDEN, ROWS),
            ("mlp.w2", "mlp.down_proj", HIDDEN, INNER),
        ):
            a, b = draw(2, d_in), draw(d_out, 2)
            arrays |= {f"layers.{layer}.{own}.lora_a.weight": a, f"layers.{layer}.{own}.lora_b.weight": b}
            product = 2.5 * b.astype(np.float64) @ a
            if own == "attn.k_proj":
                product = product.reshape(GROUPS, HEAD_DIM // 2, 2, d_in).transpose(0, 2, 1, 3).reshape(d_out, d_in)
            deltas[f"model.layers.{layer}.{hub}"] = product
    save_file(arrays, directory / "adapter_model.safetensors")
    return deltas


# diffusers: alpha / r by a tensor beside the module, else 1


def diffusers_alphas(directory: Path) -> Deltas:
    """The older spelling with network alphas on some modules."""
    draw, arrays, deltas = Draw(7), dict[str, NDArray[Any]](), Deltas()
    for layer in range(LAYERS):
        module = f"encoder.layer.{layer}.attention.self.query"
        a, b = draw(4, HIDDEN), draw(HIDDEN, 4)
        arrays |= {f"text_encoder.{module}.lora.down.weight": a, f"text_encoder.{module}.lora.up.weight": b}
        if layer:
            arrays[f"text_encoder.{module}.alpha"] = np.array(2.0, "float32")
        deltas[module] = (0.5 if layer else 1.0) * b.astype(np.float64) @ a
    save_file(arrays, directory / "pytorch_lora_weights.safetensors")
    return deltas


# O-LoRA: alpha / r of one task over the rows of all


def olora(directory: Path, earlier: int, *, apart: bool) -> Deltas:
    """Pairs of earlier tasks and the last one, concatenated or saved apart."""
    draw, arrays, deltas = Draw(8), dict[str, NDArray[Any]](), Deltas()
    config = peft_config(["self_attn.q_proj"], r=2, lora_alpha=3) | {"r_sum": earlier, "save_loranew": apart}
    for layer in range(LAYERS):
        module = f"model.layers.{layer}.self_attn.q_proj"
        a, b = draw(earlier, WIDE), draw(ROWS, earlier)
        key = f"base_model.model.{module}"
        arrays |= {f"{key}.lora_A.weight": a, f"{key}.lora_B.weight": b}
        product = b.astype(np.float64) @ a
        if apart:
            new_a, new_b = draw(2, WIDE), draw(ROWS, 2)
            arrays |= {f"{key}.loranew_A.weight": new_a, f"{key}.loranew_B.weight": new_b}
            product = product + new_b.astype(np.float64) @ new_a
        deltas[module] = 3 / 2 * product
    dump(directory / "adapter_config.json", config)
    save_file(arrays, directory / "adapter_model.safetensors")
    return deltas


# PEFT directories of trainers


def peft_config(targets: list[str], **more: Any) -> dict[str, Any]:
    """The fields every release of PEFT writes."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "inference_mode": True,
        "lora_dropout": 0.05,
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "target_modules": targets,
        **more,
    }


def peft_arrays(modules: list[str], rank: int = 2) -> Arrays:
    """Square-ended factors of Llama's output projections."""
    draw = Draw(9)
    return {
        f"base_model.model.{module}.lora_{side}.weight": draw(*shape)
        for module in modules
        for side, shape in (("A", (rank, ROWS)), ("B", (WIDE, rank)))
    }


OUTPUTS: Final = [f"model.layers.{layer}.self_attn.o_proj" for layer in range(LAYERS)]


def _plain(directory: Path, **more: Any) -> Deltas:
    arrays = peft_arrays(OUTPUTS)
    dump(directory / "adapter_config.json", peft_config(["o_proj"], r=2, lora_alpha=4, **more))
    save_file(arrays, directory / "adapter_model.safetensors", {"format": "pt"})
    return _peft_deltas(arrays, 2.0)


def _peft_deltas(arrays: Arrays, scale: float) -> Deltas:
    key = "base_model.model."
    return {
        module: scale
        * arrays[f"{key}{module}.lora_B.weight"].astype(np.float64)
        @ arrays[f"{key}{module}.lora_A.weight"]
        for module in OUTPUTS
    }


def unsloth(directory: Path) -> Deltas:
    """Its marks in auto_mapping, and a tokenizer beside the adapter."""
    mapping = {"base_model_class": "LlamaForCausalLM", "parent_library": "transformers", "unsloth_fixed": True}
    (directory / "tokenizer_config.json").write_text("{}")
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    return _plain(directory, auto_mapping=mapping, revision="unsloth", use_rslora=False, loftq_config={})


def axolotl(directory: Path) -> Deltas:
    """The base's config.json beside the adapter, and checkpoints with optimizer states in folders of their own."""
    dump(directory / "config.json", {"model_type": "llama"})
    checkpoint = directory / "checkpoint-10"
    checkpoint.mkdir()
    (checkpoint / "optimizer.pt").write_bytes(b"PK\x03\x04")
    dump(directory / "tokenizer_config.json", {})
    return _plain(directory, peft_version="0.15.2", lora_bias=False, corda_config=None, eva_config=None)


def llama_factory(directory: Path) -> Deltas:
    """Logs and results of the run."""
    for name in ("all_results.json", "train_results.json", "trainer_state.json"):
        dump(directory / name, {"epoch": 1.0})
    (directory / "trainer_log.jsonl").write_text("{}\n")
    (directory / "training_loss.png").write_bytes(b"\x89PNG")
    return _plain(directory, layers_to_transform=None, rank_pattern={}, alpha_pattern={})


def sharded(directory: Path, index: str = "adapter_model.safetensors.index.json") -> Deltas:
    """An adapter in two shards."""
    arrays = peft_arrays(OUTPUTS)
    dump(directory / "adapter_config.json", peft_config(["o_proj"], r=2, lora_alpha=4))
    names, files = sorted(arrays), [f"adapter_model-{n:05}-of-00002.safetensors" for n in (1, 2)]
    places = {name: files[position % 2] for position, name in enumerate(names)}
    for file in files:
        save_file({name: arrays[name] for name in names if places[name] == file}, directory / file)
    dump(directory / index, {"metadata": {"total_size": 1}, "weight_map": places})
    return _peft_deltas(arrays, 2.0)


EXPECTED: Final[dict[str, tuple[str, Callable[[Path], Deltas]]]] = {
    "kohya-gemma": ("gemma", kohya_gemma),
    "kohya-without-alpha": ("bert", kohya_without_alpha),
    "kohya-whole-names": ("llama", kohya_whole_names),
    "nemo-fused": ("llama", nemo_fused),
    "nemo-attention": ("mistral", nemo_attention),
    "nemo-canonical": ("llama", nemo_canonical),
    "mlx-old": ("phi", mlx_old),
    "torchtune-mistral": ("mistral", torchtune_mistral),
    "diffusers-alphas": ("bert", diffusers_alphas),
    "olora-all-tasks": ("llama", lambda directory: olora(directory, 6, apart=False)),
    "olora-last-apart": ("llama", lambda directory: olora(directory, 4, apart=True)),
    "olora-first-task": ("llama", lambda directory: olora(directory, 0, apart=True)),
    "unsloth": ("llama", unsloth),
    "axolotl": ("llama", axolotl),
    "llama-factory": ("llama", llama_factory),
    "peft-sharded": ("llama", sharded),
    "peft-sharded-by-transformers": ("llama", lambda d: sharded(d, "model.safetensors.index.json")),
}


def routed(directory: Path, *, shared: bool, experts: int = 3) -> dict[tuple[str, int], NDArray[Any]]:
    """HydraLoRA (one lora_A) or LoRAMoE (one each); the delta of every expert before the router weighs it."""
    draw, arrays, deltas = Draw(10), dict[str, NDArray[Any]](), dict[tuple[str, int], NDArray[Any]]()
    own: dict[str, Any] = {"lora_nums": experts, "merge_weights": False, "enable_lora": None}
    if not shared:
        own |= {"blc_alpha": 0.0, "blc_weight": 0.0}
    dump(directory / "adapter_config.json", peft_config(["gate_proj"], r=2, lora_alpha=5) | own)
    for layer in range(LAYERS):
        module = f"model.layers.{layer}.mlp.gate_proj"
        key = f"base_model.model.{module}"
        arrays[f"{key}.lora_route.weight"] = draw(experts, WIDE)
        every = draw(2, WIDE)
        if shared:
            arrays[f"{key}.lora_A.weight"] = every
        for expert in range(experts):
            a, b = every if shared else draw(2, WIDE), draw(INNER, 2)
            if not shared:
                arrays[f"{key}.lora_A{expert}.weight"] = a
            arrays[f"{key}.lora_B{expert}.weight"] = b
            deltas[module, expert] = 2.5 * b.astype(np.float64) @ a
    save_file(arrays, directory / "adapter_model.safetensors")
    return deltas
