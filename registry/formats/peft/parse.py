"""The composite fields of an adapter_config.json: patterns, matchers, layers, lists; each with its own refusals."""

from __future__ import annotations

import re
from typing import Final, Literal

from registry.formats.fields import Fields
from registry.formats.peft.fields import CONFIG
from registry.formats.peft.patterns import Matcher, ModulePattern, compile_layers, compile_regex, module_pattern
from schemas.canonical import JsonValue

LARGEST_RANK: Final = 2**31
Bias = Literal["none", "all", "lora_only"]
_PATTERN_HINT: Final = "Write it without back references, choices inside a repetition, and more than five repetitions."


def patterns(fields: Fields, key: str) -> tuple[ModulePattern, ...]:
    """`rank_pattern` or `alpha_pattern`, in the order of the file."""
    found = []
    values = Fields(fields.table(key), CONFIG, key)
    for name in values.document:
        value = float(values.integer(name)) if key == "rank_pattern" else values.number(name)
        if key == "rank_pattern":
            check_rank(values, name, int(value))
        pattern = module_pattern(name, value)
        if pattern is None:
            fields.refuse("PATTERN_INVALID", key, "a simple regular expression", name, _PATTERN_HINT)
        else:
            found.append(pattern)
    fields.problems += values.problems
    return tuple(found)


def triplets(fields: Fields) -> dict[str, int]:
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


def matcher(fields: Fields, key: str) -> Matcher:
    """`target_modules` or `exclude_modules`."""
    value = fields.texts(key)
    if not isinstance(value, str):
        return Matcher(names=value or ())
    if key == "target_modules" and value.lower() == "all-linear":
        return Matcher(all_linear=True)
    regex = compile_regex(value)
    if regex is None:
        fields.refuse("PATTERN_INVALID", key, "a simple regular expression", value, _PATTERN_HINT)
    return Matcher(regex=regex)


def layers(fields: Fields) -> frozenset[int]:
    """`layers_to_transform`, one or several."""
    value = fields.document.get("layers_to_transform")
    items = value if isinstance(value, list) else [] if value is None else [value]
    return frozenset(integers(fields, "layers_to_transform", list[JsonValue](items)))


def layer_patterns(fields: Fields) -> tuple[re.Pattern[str], ...]:
    """`layers_pattern`, one or several."""
    value = fields.texts("layers_pattern")
    found = []
    for pattern in (value,) if isinstance(value, str) and value else value or ():
        regex = compile_layers(pattern)
        if regex is None:
            fields.refuse("PATTERN_INVALID", "layers_pattern", "a simple regular expression", pattern, _PATTERN_HINT)
        else:
            found.append(regex)
    return tuple(found)


def bias(fields: Fields) -> Bias:
    """Which trained biases of the base the file holds."""
    value = fields.text("bias", "none")
    if value not in ("all", "lora_only", "none"):
        fields.refuse("CONFIG_FIELD_VALUE", "bias", "none, all or lora_only", value)
    return "all" if value == "all" else "lora_only" if value == "lora_only" else "none"


def names(fields: Fields, key: str) -> tuple[str, ...]:
    """A list of names."""
    value = fields.texts(key)
    if isinstance(value, str) and value:
        fields.refuse("CONFIG_FIELD_TYPE", key, "a list of names", value)
    return tuple(name for name in value if name) if isinstance(value, tuple) else ()


def tokens(fields: Fields) -> dict[str, tuple[int, ...]]:
    """`trainable_token_indices` by table; a bare list is of the input embedding, the empty name."""
    value = fields.document.get("trainable_token_indices")
    if isinstance(value, dict):
        return {name: integers(fields, "trainable_token_indices", rows) for name, rows in value.items()}
    return {"": integers(fields, "trainable_token_indices", value)} if value else {}


def integers(fields: Fields, key: str, value: JsonValue) -> tuple[int, ...]:
    """A list of whole numbers from 0."""
    items = [] if value is None else value
    numbers = tuple(item for item in items if type(item) is int and item >= 0) if isinstance(items, list) else None
    if numbers is None or not isinstance(items, list) or len(numbers) != len(items):
        fields.refuse("CONFIG_FIELD_TYPE", key, "whole numbers", value)
    return numbers or ()


def check_rank(fields: Fields, key: str, rank: int) -> None:
    """`CONFIG_FIELD_VALUE` for a rank that no factor can have."""
    if not 1 <= rank <= LARGEST_RANK:
        fields.refuse("CONFIG_FIELD_VALUE", key, f"a rank of 1 to {LARGEST_RANK}", rank)
