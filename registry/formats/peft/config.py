"""adapter_config.json: every field of PEFT 0.21's LoraConfig in one table, and the settings that decide the function.

A semantic field changes what the adapter computes; those this room does not implement must hold their neutral value.
Provenance is kept as a statement, ignorable fields say nothing about the result. A truthy field outside the table is
refused by name, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from registry.formats.fields import Fields
from registry.formats.peft.patterns import Matcher, ModulePattern, compile_layers, compile_modules, compile_regex
from registry.formats.readings import Note
from registry.formats.report import refuse_all
from schemas.adapter import ScaleRule
from schemas.canonical import JsonObject, JsonValue

CONFIG: Final = "adapter_config.json"
SAFE_INITIALIZERS: Final[tuple[JsonValue, ...]] = (True, False, "gaussian", "eva", "orthogonal", "mica")
"""Initializers that leave the base as it is. PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA change it, so their factors mean
nothing on the original base."""
LARGEST_RANK: Final = 2**31
_PATTERN_HINT: Final = "Write it without back references, choices inside a repetition, and more than five repetitions."

Kind = Literal["semantic", "provenance", "ignorable"]


@dataclass(frozen=True)
class FieldRule:
    """A field's class. `feature` names what a semantic field switches on and this room does not read; `neutral` are the
    values, besides null, false and empty, at which it is off."""

    kind: Kind
    feature: str | None = None
    neutral: tuple[JsonValue, ...] = ()


_READ: Final = FieldRule("semantic")
_PROVENANCE: Final = FieldRule("provenance")
_IGNORABLE: Final = FieldRule("ignorable")

FIELDS: Final[Mapping[str, FieldRule]] = {
    "alpha_pattern": _READ,
    "exclude_modules": _READ,
    "layers_pattern": _READ,
    "layers_to_transform": _READ,
    "lora_alpha": _READ,
    "r": _READ,
    "rank_pattern": _READ,
    "target_modules": _READ,
    "use_rslora": _READ,
    "peft_type": _READ,
    "init_lora_weights": FieldRule("semantic", "base-changing initialization", SAFE_INITIALIZERS),
    "alora_invocation_tokens": FieldRule("semantic", "activated LoRA"),
    "arrow_config": FieldRule("semantic", "Arrow routing"),
    "bias": FieldRule("semantic", "trained biases", ("none",)),
    "corda_config": FieldRule("semantic", "CorDA initialization"),
    "ensure_weight_tying": FieldRule("semantic", "tied adapters"),
    "fan_in_fan_out": FieldRule("semantic", "weights stored [d_in, d_out]"),
    "kasa_config": FieldRule("semantic", "KaSA"),
    "layer_replication": FieldRule("semantic", "replicated layers"),
    "loftq_config": FieldRule("semantic", "LoftQ initialization"),
    "lora_bias": FieldRule("semantic", "a bias in lora_B"),
    "lora_ga_config": FieldRule("semantic", "LoRA-GA initialization"),
    "megatron_config": FieldRule("semantic", "Megatron parallel layers"),
    "modules_to_save": FieldRule("semantic", "fully trained modules"),
    "monteclora_config": FieldRule("semantic", "Monte Carlo LoRA"),
    "target_parameters": FieldRule("semantic", "parameters targeted by name"),
    "trainable_token_indices": FieldRule("semantic", "trainable token rows"),
    "use_bdlora": FieldRule("semantic", "block-diagonal LoRA"),
    "use_dora": FieldRule("semantic", "DoRA"),
    "use_qalora": FieldRule("semantic", "QA-LoRA"),
    "velora_config": FieldRule("semantic", "VeLoRA"),
    "auto_mapping": _PROVENANCE,
    "base_model_name_or_path": _PROVENANCE,
    "eva_config": _PROVENANCE,
    "lora_dropout": _PROVENANCE,
    "peft_version": _PROVENANCE,
    "revision": _PROVENANCE,
    "task_type": _PROVENANCE,
    "inference_mode": _IGNORABLE,
    "megatron_core": _IGNORABLE,
    "qalora_group_size": _IGNORABLE,
    "runtime_config": _IGNORABLE,
}


@dataclass(frozen=True)
class LoraSettings:
    """What decides the function: which modules, at which rank and scale."""

    rank: int
    alpha: float
    rule: ScaleRule
    rank_patterns: tuple[ModulePattern, ...]
    alpha_patterns: tuple[ModulePattern, ...]
    target: Matcher
    exclude: Matcher
    layers: frozenset[int]
    layer_patterns: tuple[re.Pattern[str], ...]


def read_settings(document: JsonObject) -> LoraSettings:
    """The settings of an adapter_config.json.

    Raises:
        RefusedError: `METHOD_UNSUPPORTED` alone; or `CONFIG_FIELD_UNKNOWN`, `FEATURE_UNSUPPORTED`,
            `CONFIG_FIELD_MISSING`, `CONFIG_FIELD_TYPE`, `CONFIG_FIELD_VALUE`, `CONFIG_FIELD_CONFLICT`,
            `PATTERN_INVALID`, all at once.
    """
    fields = Fields(document, CONFIG)
    if fields.text("peft_type") not in {"LORA", ""}:
        hint = "Only LoRA and rank-stabilised LoRA are read; convert the adapter to one of them."
        fields.refuse("METHOD_UNSUPPORTED", "peft_type", "LORA", document["peft_type"], hint)
        refuse_all(fields.problems)
    _refuse_features(fields)
    rank = fields.integer("r")
    _check_rank(fields, "r", rank)
    settings = LoraSettings(
        rank=rank,
        alpha=fields.number("lora_alpha"),
        rule="alpha_over_sqrt_r" if fields.boolean("use_rslora", False) else "alpha_over_r",
        rank_patterns=_patterns(fields, "rank_pattern"),
        alpha_patterns=_patterns(fields, "alpha_pattern"),
        target=_matcher(fields, "target_modules"),
        exclude=_matcher(fields, "exclude_modules"),
        layers=_layers(fields),
        layer_patterns=_layer_patterns(fields),
    )
    if document.get("target_modules") is None:
        fields.refuse("CONFIG_FIELD_MISSING", "target_modules", "module names or a pattern", "no such field")
    _refuse_conflicts(fields, settings)
    refuse_all(fields.problems)
    return settings


def provenance(document: JsonObject) -> dict[str, Note]:
    """What the config says that is not identity, in the values a statement can hold."""
    kept = [key for key, rule in FIELDS.items() if rule.kind == "provenance"]
    kept += ["init_lora_weights", "target_modules"]
    return {key: _note(document[key]) for key in sorted(kept) if document.get(key) is not None}


def _note(value: JsonValue) -> Note:
    if isinstance(value, list):
        return tuple(sorted(str(item) for item in value))
    return str(value) if isinstance(value, dict) else value


def _refuse_features(fields: Fields) -> None:
    for key, value in fields.document.items():
        rule = FIELDS.get(key)
        if rule is None and value:
            hint = "The field may change the function and is not understood; it cannot be dropped."
            fields.refuse("CONFIG_FIELD_UNKNOWN", key, "a field of LoraConfig", value, hint)
        elif rule is not None and rule.feature and value and not _is_one_of(value, rule.neutral):
            hint = f"An adapter with {rule.feature} is not read yet; convert it to a plain LoRA first."
            fields.refuse("FEATURE_UNSUPPORTED", key, f"no {rule.feature}", value, hint)


def _is_one_of(value: JsonValue, allowed: tuple[JsonValue, ...]) -> bool:
    # 1 == True in Python; a config that says 1 has not said true.
    return any(type(value) is type(item) and value == item for item in allowed)


def _patterns(fields: Fields, key: str) -> tuple[ModulePattern, ...]:
    found = []
    values = Fields(fields.table(key), CONFIG, key)
    for name in sorted(values.document):
        value = float(values.integer(name)) if key == "rank_pattern" else values.number(name)
        if key == "rank_pattern":
            _check_rank(values, name, int(value))
        regex = compile_modules(name)
        if regex is None:
            fields.refuse("PATTERN_INVALID", key, "a simple regular expression", name, _PATTERN_HINT)
        else:
            found.append(ModulePattern(name, regex, value))
    fields.problems += values.problems
    return tuple(found)


def _matcher(fields: Fields, key: str) -> Matcher:
    value = fields.texts(key)
    if not isinstance(value, str):
        return Matcher(names=value or ())
    if key == "target_modules" and value.lower() == "all-linear":
        return Matcher(all_linear=True)
    regex = compile_regex(value)
    if regex is None:
        fields.refuse("PATTERN_INVALID", key, "a simple regular expression", value, _PATTERN_HINT)
    return Matcher(regex=regex)


def _layers(fields: Fields) -> frozenset[int]:
    value = fields.document.get("layers_to_transform")
    items = value if isinstance(value, list) else [] if value is None else [value]
    layers = frozenset(item for item in items if type(item) is int)
    if any(type(item) is not int for item in items):
        fields.refuse("CONFIG_FIELD_TYPE", "layers_to_transform", "layer numbers", value)
    return layers


def _layer_patterns(fields: Fields) -> tuple[re.Pattern[str], ...]:
    value = fields.texts("layers_pattern")
    found = []
    for pattern in (value,) if isinstance(value, str) and value else value or ():
        regex = compile_layers(pattern)
        if regex is None:
            fields.refuse("PATTERN_INVALID", "layers_pattern", "a simple regular expression", pattern, _PATTERN_HINT)
        else:
            found.append(regex)
    return tuple(found)


def _refuse_conflicts(fields: Fields, settings: LoraSettings) -> None:
    by_layer = fields.document.get("layers_to_transform") is not None
    by_pattern = isinstance(fields.document.get("target_modules"), str)
    if by_pattern and (by_layer or settings.layer_patterns):
        fields.refuse("CONFIG_FIELD_CONFLICT", "layers_to_transform", "a list of target_modules", "a pattern")
    elif settings.layer_patterns and not by_layer:
        fields.refuse("CONFIG_FIELD_CONFLICT", "layers_pattern", "layers_to_transform beside it", "no such field")


def _check_rank(fields: Fields, key: str, rank: int) -> None:
    if not 1 <= rank <= LARGEST_RANK:
        fields.refuse("CONFIG_FIELD_VALUE", key, f"a rank of 1 to {LARGEST_RANK}", rank)
