"""config.json: the keys that change what a base computes, with the defaults transformers fills in.

A key is semantic (it becomes the architecture), ignorable (it cannot change the output of the forward pass), or neutral
at one value only. Any other key with a truthy value is refused by name: what is not understood is not a base.
"""

from __future__ import annotations

from typing import Final

from registry.errors import RefusedError
from registry.formats.base.keys import CONFIG, IGNORABLE, NEUTRAL, QUANTIZATION
from registry.formats.base.rules import Values
from registry.formats.base.types import CONFIG_TYPES, ConfigType, Default
from registry.formats.fields import Fields
from registry.formats.report import located, problem, refuse_all
from schemas.architectures import KnownArchitecture
from schemas.canonical import JsonObject, JsonValue
from schemas.errors import Problem

_UNKNOWN: Final = "This setting may change what the model computes and is not understood; it cannot be dropped."


def read_architecture(document: JsonObject, file: str = CONFIG) -> KnownArchitecture:
    """The architecture a config.json, or a file with the same settings, describes; packing is read elsewhere.

    Raises:
        RefusedError: `MODEL_TYPE_UNLISTED`, `CONFIG_KEY_UNKNOWN`, `CONFIG_FIELD_TYPE`, `CONFIG_FIELD_VALUE`,
            `CONFIG_FIELD_CONFLICT`, all at once.
    """
    model_type = document.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_TYPES:
        raise RefusedError(_unlisted(model_type))
    facts = CONFIG_TYPES[model_type]
    fields = Fields(_respelled(document, facts), file)
    _refuse_unknown(fields, facts)
    _refuse_two_values(fields, document, facts)
    values: Values = {"model_type": model_type}
    for name, default in facts.fields.items():
        values[name] = _value(fields, name, default, values)
    refuse_all(fields.problems)
    with located(file):
        return facts.record.model_validate(values)


def ties_word_embeddings(document: JsonObject) -> bool:
    """Whether the output embedding is the input embedding, by the config or its model type's default."""
    value = document.get("tie_word_embeddings")
    return value if isinstance(value, bool) else CONFIG_TYPES[str(document["model_type"])].tied


def _value(fields: Fields, name: str, default: Default, values: Values) -> object:
    if callable(default):
        return default(fields, name, values)
    if isinstance(default, bool):
        return fields.boolean(name, default)
    if isinstance(default, int):
        return fields.integer(name, default)
    return fields.number(name, default) if isinstance(default, float) else fields.text(name, default)


def _respelled(document: JsonObject, facts: ConfigType) -> JsonObject:
    """The document under the field names of its record; where both spellings stand, the field's own."""
    given = {facts.names[key]: value for key, value in document.items() if key in facts.names}
    return given | {key: value for key, value in document.items() if key not in facts.names}


def _refuse_two_values(fields: Fields, document: JsonObject, facts: ConfigType) -> None:
    for other, name in facts.names.items():
        if other in document and name in document and document[other] != document[name]:
            fields.refuse("CONFIG_FIELD_CONFLICT", other, f"{document[name]!r}, as {name}", document[other])


def _refuse_unknown(fields: Fields, facts: ConfigType) -> None:
    understood = facts.fields.keys() | facts.keys | facts.ignorable | IGNORABLE | {QUANTIZATION}
    neutral = {**NEUTRAL, **facts.neutral}
    for key, value in fields.document.items():
        if key not in understood and value and value != neutral.get(key):
            fields.refuse("CONFIG_KEY_UNKNOWN", key, "a key known for this model type", value, _UNKNOWN)


def _unlisted(model_type: JsonValue) -> Problem:
    listed = ", ".join(sorted(CONFIG_TYPES))
    hint = "This model type is not listed yet; its semantic keys must be known before it can have an identity."
    return problem("MODEL_TYPE_UNLISTED", (CONFIG, "model_type"), f"one of {listed}", repr(model_type)[:80], hint)
