"""Write an adapter manifest as a directory that PEFT loads with the same function."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from registry.formats.peft.expressible import peft_problems
from registry.formats.peft.fields import CONFIG
from registry.formats.peft.keys import WEIGHTS
from registry.formats.peft.names import STACKED, Names, factor_tensors, names_of, replaced_tensor, stored
from registry.formats.report import refuse_all
from registry.formats.safetensors_write import ReadTensor, write_safetensors
from schemas.adapter import ROWS, AdapterManifest, FactorManifest, ScaleRule
from schemas.base import BaseManifest, TensorRef
from schemas.canonical import JsonObject, JsonValue

LARGEST_INITIAL_RANK: Final = 1024
ALLOCATOR_EPSILON: Final = 1e-5
"""What AdaLoRA's pinned code adds to the rank before it divides (V 0x03)."""


def write_peft(
    directory: Path, adapter: AdapterManifest, base: BaseManifest, read_tensor: ReadTensor, *, base_name: str
) -> tuple[Path, ...]:
    """Write adapter_config.json and adapter_model.safetensors; the same manifest gives the same bytes.

    Args:
        directory: made when missing; neither file may exist.
        adapter: LoRA, rank-stabilised, DoRA, AdaLoRA or with a bias in B, on Linear layers, convolutions and tables;
            with trained heads, saved modules, biases and token rows.
        base: whose layers it adapts.
        read_tensor: gives the bytes of a tensor, whole or in blocks.
        base_name: `base_model_name_or_path`, as the reader of the directory will find the base.

    Raises:
        RefusedError: `ADAPTER_NOT_PEFT`, one problem for each thing PEFT cannot express.
        DigestMismatchError: `TENSOR_DIGEST_MISMATCH`.
    """
    refuse_all(peft_problems(adapter, base.architecture.model_type))
    names = names_of(adapter, base)
    config = _config(adapter, base, names, read_tensor) | {"base_model_name_or_path": base_name}
    adapted = frozenset(names.module(factor.module) for factor in adapter.factors)
    tensors = dict(item for factor in adapter.factors for item in factor_tensors(factor, names))
    for item in adapter.full_replacements:
        placed = replaced_tensor(item, names, base, adapted)
        if placed is not None:
            tensors[placed[0]] = placed[1]
    return write_directory(directory, config, tensors, read_tensor)


def write_directory(
    directory: Path, config: JsonObject, tensors: Mapping[str, TensorRef], read_tensor: ReadTensor
) -> tuple[Path, ...]:
    """The two files of a PEFT directory, in the same bytes for the same content."""
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / CONFIG).open("x", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
    write_safetensors(directory / WEIGHTS, tensors, read_tensor)
    return (directory / CONFIG, directory / WEIGHTS)


def plain_config(rank: int, alpha: int | float, targets: list[str]) -> JsonObject:
    """The fields every LoRA directory has, with nothing switched on."""
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "revision": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "use_rslora": False,
        "target_modules": list[JsonValue](targets),
        "rank_pattern": {},
        "alpha_pattern": {},
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "modules_to_save": None,
        "use_dora": False,
    }


def _config(adapter: AdapterManifest, base: BaseManifest, names: Names, read_tensor: ReadTensor) -> JsonObject:
    config = _triplets(adapter, names) if "E" in adapter.factors[0].extra else _pairs(adapter, names)
    config["fan_in_fan_out"] = any(names.kind(factor) == "conv1d" for factor in adapter.factors)
    return config | _whole(adapter, base, names, read_tensor)


def _pairs(adapter: AdapterManifest, names: Names) -> JsonObject:
    rule = _common_rule(adapter)
    ranks = {names.module(factor.module): factor.rank for factor in adapter.factors}
    alphas = {names.module(factor.module): _alpha(factor, rule) for factor in adapter.factors}
    rank, alpha = _most_common(list(ranks.values())), _most_common(list(alphas.values()))
    parameters = sorted(names.module(factor.module) for factor in adapter.factors if factor.order == STACKED)
    config = plain_config(int(rank), _plain(alpha), sorted(ranks.keys() - set(parameters))) | {
        "use_rslora": rule == "alpha_over_sqrt_r",
        "rank_pattern": {_only(name): value for name, value in ranks.items() if value != rank},
        "alpha_pattern": {_only(name): _plain(value) for name, value in alphas.items() if value != alpha},
        "use_dora": "magnitude" in adapter.factors[0].extra,
    }
    if "bias" in adapter.factors[0].extra:
        config["lora_bias"] = True
    if parameters:
        config["target_parameters"] = list[JsonValue](parameters)
    if "invocation_tokens" in adapter.training:
        config["alora_invocation_tokens"] = [int(token) for token in adapter.training["invocation_tokens"].split(",")]
    return config


def _triplets(adapter: AdapterManifest, names: Names) -> JsonObject:
    """AdaLoRA after its allocation: which of the initial triplets each module kept says nothing, how many does."""
    ranks = {names.module(factor.module): factor.rank for factor in adapter.factors}
    initial, alpha = initial_rank(adapter.factors[0].scale.value, max(ranks.values()))
    return plain_config(initial, alpha, sorted(ranks)) | {
        "peft_type": "ADALORA",
        "init_r": initial,
        "target_r": max(1, min(ranks.values())),
        "tinit": 0,
        "tfinal": 0,
        "deltaT": 1,
        "total_step": 1,
        "rank_pattern": {f"{name}.lora_E": [index < rank for index in range(initial)] for name, rank in ranks.items()},
    }


def initial_rank(scale: float, least: int) -> tuple[int, int | float]:
    """The initial rank and alpha whose quotient alpha / (rank + 1e-5) is the scale, whole numbers where there are any.

    PEFT divides in float32, so that another pair of the same quotient would round otherwise.
    """
    for rank in range(max(least, 1), LARGEST_INITIAL_RANK):
        alpha = scale * (rank + ALLOCATOR_EPSILON)
        if abs(alpha - round(alpha)) <= 1e-12 * abs(alpha):
            return rank, round(alpha)
    rank = max(least, 1)
    return rank, scale * (rank + ALLOCATOR_EPSILON)


def _whole(adapter: AdapterManifest, base: BaseManifest, names: Names, read_tensor: ReadTensor) -> JsonObject:
    """What stands in the config about tensors replaced as a whole."""
    replaced = {item.name for item in adapter.full_replacements}
    tables = {item for item in replaced if "#" in item}
    weights = {names.replaced(item, base) for item in replaced - tables if not item.endswith(".bias")}
    heads = weights | {names.replaced(item, base) for item in replaced - tables if not stored(item, base)}
    biases = {names.replaced(item, base) for item in replaced - tables} - heads
    found: JsonObject = {"modules_to_save": list[JsonValue](sorted(heads)) or None}
    if biases:
        found["bias"] = "all"
    if tables:
        found["trainable_token_indices"] = {
            names.replaced(item.name, base): list[JsonValue](_numbers(read_tensor(item.value)))
            for item in adapter.full_replacements
            if item.name.endswith(ROWS)
        }
    return found


def _numbers(content: bytes | Iterable[bytes]) -> list[int]:
    data = content if isinstance(content, bytes) else b"".join(content)
    return [int.from_bytes(data[start : start + 8], "little", signed=True) for start in range(0, len(data), 8)]


def _common_rule(adapter: AdapterManifest) -> ScaleRule:
    """PEFT has one rule for all modules; a mixture is written as alpha / r with alpha made to fit."""
    rules = {factor.scale.rule for factor in adapter.factors}
    return "alpha_over_sqrt_r" if rules == {"alpha_over_sqrt_r"} else "alpha_over_r"


def _alpha(factor: FactorManifest, rule: ScaleRule) -> float:
    return factor.scale.alpha if factor.scale.rule == rule else factor.scale.value * factor.rank


def _most_common(values: list[int] | list[float]) -> float:
    """The most frequent value, the smallest of several."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def _plain(value: float) -> int | float:
    """A whole alpha as an integer, as PEFT's own configs have it."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _only(module: str) -> str:
    """A pattern that matches this module alone: pattern keys are regular expressions of a name's end."""
    return "^" + re.escape(module)
