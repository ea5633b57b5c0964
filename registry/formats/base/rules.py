"""Rules for fields of config.json whose value is not simply what stands there or a constant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import numpy as np

from registry.formats.base.rope import RopeDefaults, read_rope, read_ropes
from registry.formats.fields import Fields

T = TypeVar("T")
Values = dict[str, object]
Rule = Callable[[Fields, str, Values], object]
"""Reads one field by its name; sees the fields before it."""

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"
MOST_LAYERS: Final = 4096
"""More would be no model; a config could otherwise ask for any amount of memory."""


def nearest_float32(value: float) -> float:
    """The shortest decimal of the nearest float32, so that 1e-5 and its single-precision copy are one number."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(value)))


def rms_eps(fields: Fields, key: str, _: Values) -> float:
    return nearest_float32(fields.number(key, 1e-6))


def rms_eps_larger(fields: Fields, key: str, _: Values) -> float:
    return nearest_float32(fields.number(key, 1e-5))


def same_as(other: str) -> Rule:
    return lambda fields, key, values: fields.integer(key, _whole(values, other))


def key_value_heads(default: int) -> Rule:
    """Null means one for each attention head."""

    def read(fields: Fields, key: str, values: Values) -> int:
        given = _nullable(fields, key, default, fields.integer)
        return _whole(values, "num_attention_heads") if given is None else given

    return read


def head_dim(fields: Fields, key: str, values: Values) -> int:
    return fields.integer(key, _whole(values, "hidden_size") // max(_whole(values, "num_attention_heads"), 1))


def four_times(fields: Fields, key: str, values: Values) -> int:
    return fields.integer(key, 4 * _whole(values, "n_embd"))


def integer_or_none(default: int | None) -> Rule:
    return lambda fields, key, _: _nullable(fields, key, default, fields.integer)


def number_or_none(default: float | None) -> Rule:
    return lambda fields, key, _: _nullable(fields, key, default, fields.number)


def _nullable(fields: Fields, key: str, default: T | None, read: Callable[[str], T]) -> T | None:
    """Null is a value of its own here; only an absent key takes the default."""
    if key not in fields.document:
        return default
    return None if fields.document[key] is None else read(key)


def pair(default: int) -> Rule:
    """Height and width; one number means both."""

    def read(fields: Fields, key: str, _: Values) -> tuple[int, ...]:
        value = fields.document.get(key)
        if not isinstance(value, list):
            return (fields.integer(key, default),) * 2
        found = tuple(item for item in value if type(item) is int)
        if len(found) != 2 or len(value) != 2:
            fields.refuse("CONFIG_FIELD_TYPE", key, "one integer, or two", value)
            return (1, 1)
        return found

    return read


def positions(fields: Fields, key: str, _: Values) -> str:
    found = fields.text(key, "absolute")
    if found not in {"absolute", "relative_key", "relative_key_query"}:
        fields.refuse("CONFIG_FIELD_VALUE", key, "a type transformers knows", found)
    return found


def gemma_act(fields: Fields, key: str, _: Values) -> str:
    """Gemma's releases say `gelu` and mean the tanh approximation; a second key must agree."""
    found = fields.text(key, "gelu_pytorch_tanh")
    found = "gelu_pytorch_tanh" if found == "gelu" else found
    other = fields.text("hidden_activation", found)
    if other != found:
        fields.refuse("CONFIG_FIELD_CONFLICT", "hidden_activation", found, other)
    return found


def rope(theta: float = 10_000.0, partial: float | None = None) -> Rule:
    def read(fields: Fields, _: str, values: Values) -> object:
        original = values.get("original_max_position_embeddings")
        length = _whole(values, "max_position_embeddings")
        return read_rope(fields, RopeDefaults(length, theta, partial, original if isinstance(original, int) else None))

    return read


def ropes(index: int) -> Rule:
    def read(fields: Fields, _: str, values: Values) -> object:
        before = len(fields.problems)
        ropes = read_ropes(fields, RopeDefaults(_whole(values, "max_position_embeddings")))
        if index:
            del fields.problems[before:]
        return ropes[index]

    return read


def qwen_layers(fields: Fields, key: str, values: Values) -> tuple[str, ...]:
    first = fields.integer("max_window_layers", 28)
    slides = qwen_window(fields, "sliding_window", {}) is not None
    return _layer_types(fields, key, values, lambda layer: slides and layer >= first)


def qwen_moe_layers(fields: Fields, key: str, values: Values) -> tuple[str, ...]:
    last = fields.integer("max_window_layers", 28)
    slides = fields.boolean("use_sliding_window", False)
    return _layer_types(fields, key, values, lambda layer: slides and layer < last and layer % 2 == 0)


def alternating_layers(every: int) -> Rule:
    """Each `every`-th layer is full; older configs of Gemma 3 give the number."""

    def read(fields: Fields, key: str, values: Values) -> tuple[str, ...]:
        period = max(fields.integer("sliding_window_pattern", every), 1)
        return _layer_types(fields, key, values, lambda layer: (layer + 1) % period != 0)

    return read


def _layer_types(fields: Fields, key: str, values: Values, slides: Callable[[int], bool]) -> tuple[str, ...]:
    count = _whole(values, "num_hidden_layers")
    given = fields.document.get(key)
    if count > MOST_LAYERS:
        fields.refuse("CONFIG_FIELD_VALUE", "num_hidden_layers", f"at most {MOST_LAYERS} layers", count)
        return ()
    if given is None:
        return tuple(SLIDING if slides(layer) else FULL for layer in range(count))
    found = tuple(item for item in _items(given) if isinstance(item, str) and item in {FULL, SLIDING})
    if not isinstance(given, list) or len(found) != len(given) or len(found) != count:
        fields.refuse("CONFIG_FIELD_VALUE", key, f"{count} times {FULL} or {SLIDING}", given)
    return found


def qwen_window(fields: Fields, key: str, values: Values) -> int | None:
    """The window where it is in use: switched on, and by some layer."""
    if not fields.boolean("use_sliding_window", False):
        return None
    return window(fields, key, values)


def window(fields: Fields, key: str, values: Values) -> int | None:
    layers = values.get("layer_types")
    if layers is not None and SLIDING not in _items(layers):
        return None
    return _nullable(fields, key, 4096, fields.integer)


def gemma3_window(fields: Fields, key: str, values: Values) -> int | None:
    """A bidirectional model's code counts the window to each side."""
    found = window(fields, key, values)
    return found // 2 + 1 if found is not None and values["use_bidirectional_attention"] else found


def layer_numbers(fields: Fields, key: str, _: Values) -> tuple[int, ...]:
    value = fields.document.get(key)
    found = sorted({item for item in _items(value) if type(item) is int})
    if value is not None and (not isinstance(value, list) or any(type(item) is not int for item in value)):
        fields.refuse("CONFIG_FIELD_TYPE", key, "layer numbers", value)
    return tuple(found)


def _items(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else ()


def _whole(values: Values, key: str) -> int:
    value = values[key]
    assert isinstance(value, int)
    return value
