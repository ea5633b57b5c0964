"""adapter_config.json: the settings that decide what an adapter computes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from registry.formats.fields import Fields
from registry.formats.peft.fields import CONFIG, refuse_features, refuse_method
from registry.formats.peft.initializers import Initializer, read_initializer
from registry.formats.peft.patterns import (
    Era,
    Matcher,
    ModulePattern,
    compile_layers,
    compile_regex,
    eras_of,
    module_pattern,
)
from registry.formats.report import refuse_all
from schemas.adapter import ScaleRule
from schemas.canonical import JsonObject, JsonValue

LARGEST_RANK: Final = 2**31
Method = Literal["LORA", "ADALORA"]
Bias = Literal["none", "all", "lora_only"]
_PATTERN_HINT: Final = "Write it without back references, choices inside a repetition, and more than five repetitions."


@dataclass(frozen=True)
class LoraSettings:
    """What decides the function: which modules, at which rank and scale, and which parts beside the factors.

    Attributes:
        rank, alpha, rule: of modules no pattern speaks of; AdaLoRA's rank is the initial one.
        triplets: AdaLoRA's rank per module after allocation.
        eras: the pattern rules the config may have been written for.
        extras: roles every factor of a Linear layer must have beside a and b.
        group: input features QA-LoRA pools into one; 1 elsewhere.
        saved: names of fully trained modules.
        parameters: names of stacked parameters adapted as a whole.
        tokens: trained rows by name of their table; the empty name is the input embedding.
        invocation: the tokens that switch an activated LoRA on.
    """

    method: Method
    rank: int
    alpha: float
    rule: ScaleRule
    rank_patterns: tuple[ModulePattern, ...]
    alpha_patterns: tuple[ModulePattern, ...]
    eras: tuple[Era, ...]
    triplets: dict[str, int]
    target: Matcher
    exclude: Matcher
    layers: frozenset[int]
    layer_patterns: tuple[re.Pattern[str], ...]
    initializer: Initializer
    dora: bool
    kasa: bool
    lora_bias: bool
    bias: Bias
    group: int
    saved: tuple[str, ...]
    parameters: tuple[str, ...]
    tokens: dict[str, tuple[int, ...]]
    invocation: tuple[int, ...]

    @property
    def extras(self) -> frozenset[str]:
        """Roles the flags promise on every factor."""
        promised = {"magnitude": self.dora, "diag": self.kasa, "bias": self.lora_bias, "E": self.method == "ADALORA"}
        return frozenset(role for role, there in promised.items() if there)


def read_settings(document: JsonObject) -> LoraSettings:
    """The settings of an adapter_config.json.

    Raises:
        RefusedError: `METHOD_UNSUPPORTED` alone; or `CONFIG_FIELD_UNKNOWN`, `FEATURE_UNSUPPORTED`,
            `CONFIG_FIELD_MISSING`, `CONFIG_FIELD_TYPE`, `CONFIG_FIELD_VALUE`, `CONFIG_FIELD_CONFLICT`,
            `PATTERN_INVALID`, all at once.
    """
    fields = Fields(document, CONFIG)
    method = fields.text("peft_type")
    if method not in {"LORA", "ADALORA", ""}:
        refuse_method(fields, method)
        refuse_all(fields.problems)
    refuse_features(fields)
    settings = _settings(fields, "ADALORA" if method == "ADALORA" else "LORA")
    _refuse_conflicts(fields, settings)
    refuse_all(fields.problems)
    return settings


def _settings(fields: Fields, method: Method) -> LoraSettings:
    adaptive = method == "ADALORA"
    rank = fields.integer("init_r", 12) if adaptive else fields.integer("r")
    _check_rank(fields, "init_r" if adaptive else "r", rank)
    ranks = () if adaptive else _patterns(fields, "rank_pattern")
    alphas = _patterns(fields, "alpha_pattern")
    version = fields.text("peft_version", "")
    return LoraSettings(
        method=method,
        rank=rank,
        alpha=fields.number("lora_alpha"),
        rule="alpha_over_sqrt_r" if fields.boolean("use_rslora", False) and not adaptive else "alpha_over_r",
        rank_patterns=ranks,
        alpha_patterns=alphas,
        eras=eras_of(version, (pattern.key for pattern in (*ranks, *alphas))),
        triplets=_triplets(fields) if adaptive else {},
        target=_matcher(fields, "target_modules"),
        exclude=_matcher(fields, "exclude_modules"),
        layers=_layers(fields),
        layer_patterns=_layer_patterns(fields),
        initializer=read_initializer(fields, fields.document.get("init_lora_weights")),
        dora=fields.boolean("use_dora", False),
        kasa=bool(fields.table("kasa_config")),
        lora_bias=fields.boolean("lora_bias", False),
        bias=_bias(fields),
        group=fields.integer("qalora_group_size", 16) if fields.boolean("use_qalora", False) else 1,
        saved=_names(fields, "modules_to_save"),
        parameters=_names(fields, "target_parameters"),
        tokens=_tokens(fields),
        invocation=_integers(fields, "alora_invocation_tokens", fields.document.get("alora_invocation_tokens")),
    )


def _patterns(fields: Fields, key: str) -> tuple[ModulePattern, ...]:
    found = []
    values = Fields(fields.table(key), CONFIG, key)
    for name in values.document:
        value = float(values.integer(name)) if key == "rank_pattern" else values.number(name)
        if key == "rank_pattern":
            _check_rank(values, name, int(value))
        pattern = module_pattern(name, value)
        if pattern is None:
            fields.refuse("PATTERN_INVALID", key, "a simple regular expression", name, _PATTERN_HINT)
        else:
            found.append(pattern)
    fields.problems += values.problems
    return tuple(found)


def _triplets(fields: Fields) -> dict[str, int]:
    """AdaLoRA's allocation: per module one flag a triplet, or their number."""
    found = {}
    for name, value in fields.table("rank_pattern").items():
        if isinstance(value, list) and all(isinstance(item, bool) for item in value):
            found[name.rpartition(".lora_E")[0] or name] = sum(item is True for item in value)
        elif type(value) is int and value >= 0:
            found[name.rpartition(".lora_E")[0] or name] = value
        else:
            fields.refuse("CONFIG_FIELD_TYPE", "rank_pattern", "true or false for each triplet", value)
    return found


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
    return frozenset(_integers(fields, "layers_to_transform", list[JsonValue](items)))


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


def _bias(fields: Fields) -> Bias:
    value = fields.text("bias", "none")
    if value not in ("all", "lora_only", "none"):
        fields.refuse("CONFIG_FIELD_VALUE", "bias", "none, all or lora_only", value)
    return "all" if value == "all" else "lora_only" if value == "lora_only" else "none"


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    value = fields.texts(key)
    if isinstance(value, str) and value:
        fields.refuse("CONFIG_FIELD_TYPE", key, "a list of names", value)
    return tuple(name for name in value if name) if isinstance(value, tuple) else ()


def _tokens(fields: Fields) -> dict[str, tuple[int, ...]]:
    value = fields.document.get("trainable_token_indices")
    if isinstance(value, dict):
        return {name: _integers(fields, "trainable_token_indices", rows) for name, rows in value.items()}
    return {"": _integers(fields, "trainable_token_indices", value)} if value else {}


def _integers(fields: Fields, key: str, value: JsonValue) -> tuple[int, ...]:
    items = [] if value is None else value
    numbers = tuple(item for item in items if type(item) is int and item >= 0) if isinstance(items, list) else None
    if numbers is None or not isinstance(items, list) or len(numbers) != len(items):
        fields.refuse("CONFIG_FIELD_TYPE", key, "whole numbers", value)
    return numbers or ()


def _refuse_conflicts(fields: Fields, settings: LoraSettings) -> None:
    by_layer = fields.document.get("layers_to_transform") is not None
    by_pattern = isinstance(fields.document.get("target_modules"), str)
    if fields.document.get("target_modules") is None and not settings.parameters:
        fields.refuse("CONFIG_FIELD_MISSING", "target_modules", "module names or a pattern", "no such field")
    if by_pattern and (by_layer or settings.layer_patterns):
        fields.refuse("CONFIG_FIELD_CONFLICT", "layers_to_transform", "a list of target_modules", "a pattern")
    elif settings.layer_patterns and not by_layer:
        fields.refuse("CONFIG_FIELD_CONFLICT", "layers_pattern", "layers_to_transform beside it", "no such field")
    if settings.method == "ADALORA" and (settings.dora or settings.initializer.payload == "native"):
        fields.refuse("CONFIG_FIELD_CONFLICT", "use_dora", "AdaLoRA by itself", "another variant beside it")


def _check_rank(fields: Fields, key: str, rank: int) -> None:
    if not 1 <= rank <= LARGEST_RANK:
        fields.refuse("CONFIG_FIELD_VALUE", key, f"a rank of 1 to {LARGEST_RANK}", rank)
