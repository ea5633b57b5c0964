"""Write an adapter manifest as a directory that PEFT loads with the same function."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from registry.errors import RefusedError
from registry.formats.peft.fields import CONFIG
from registry.formats.peft.keys import ROOT, WEIGHTS
from registry.formats.report import problem
from registry.formats.safetensors_write import ReadTensor, write_safetensors
from schemas.adapter import AdapterManifest, FactorManifest, ScaleRule
from schemas.canonical import JsonObject, JsonValue


def write_peft(
    directory: Path, adapter: AdapterManifest, read_tensor: ReadTensor, *, base_name: str
) -> tuple[Path, ...]:
    """Write adapter_config.json and adapter_model.safetensors; the same manifest gives the same bytes.

    Args:
        directory: made when missing; neither file may exist.
        read_tensor: gives the bytes of a tensor, whole or in blocks.
        base_name: `base_model_name_or_path`, as the reader of the directory will find the base.

    Raises:
        RefusedError: `ADAPTER_NOT_PEFT` for what plain PEFT LoRA cannot express.
        DigestMismatchError: `TENSOR_DIGEST_MISMATCH`.
    """
    _refuse_inexpressible(adapter)
    config = json.dumps(_config(adapter, base_name), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    tensors = {
        f"{ROOT}{factor.module}.{role}.weight": ref
        for factor in adapter.factors
        for role, ref in (("lora_A", factor.a), ("lora_B", factor.b))
    }
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / CONFIG).open("x", encoding="utf-8", newline="\n") as stream:
        stream.write(config)
    write_safetensors(directory / WEIGHTS, tensors, read_tensor)
    return (directory / CONFIG, directory / WEIGHTS)


def _config(adapter: AdapterManifest, base_name: str) -> JsonObject:
    rule = _common_rule(adapter)
    ranks = {factor.module: factor.rank for factor in adapter.factors}
    alphas = {factor.module: _alpha(factor, rule) for factor in adapter.factors}
    rank, alpha = _most_common(list(ranks.values())), _most_common(list(alphas.values()))
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base_name,
        "revision": None,
        "inference_mode": True,
        "r": int(rank),
        "lora_alpha": _plain(alpha),
        "lora_dropout": 0.0,
        "use_rslora": rule == "alpha_over_sqrt_r",
        "target_modules": list[JsonValue](sorted(ranks)),
        "rank_pattern": {_only(name): value for name, value in ranks.items() if value != rank},
        "alpha_pattern": {_only(name): _plain(value) for name, value in alphas.items() if value != alpha},
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "modules_to_save": None,
        "use_dora": False,
    }


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


def _refuse_inexpressible(adapter: AdapterManifest) -> None:
    plain = adapter.payload == "portable" and adapter.initializer == "none" and not adapter.full_replacements
    for factor in adapter.factors:
        plain = plain and not factor.extra and factor.site[1:] == (-1, -1, "")
    if not plain:
        hint = "Convert the adapter to a plain LoRA, or export it in its own format."
        expected = "a portable adapter of lora_A and lora_B on Linear layers"
        raise RefusedError(problem("ADAPTER_NOT_PEFT", (), expected, f"family {adapter.family}", hint))
