"""Every one-field change of a document that its type allows, and some that it does not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from schemas.canonical import JsonObject, JsonValue
from schemas.digests import PREFIX
from tests.schemas.chain import Path, replaced

DIGEST: Final = PREFIX + "0" * 64
OTHER_TYPES: Final[tuple[JsonValue, ...]] = (None, True, 7, 0.5, "other", [], {}, DIGEST)


class Vocabulary:
    """The closed sets of words in a model, so that a word can be exchanged for each other one of its set."""

    def __init__(self, *models: type[BaseModel]) -> None:
        self._sets = {tuple(words) for model in models for words in _enums(model.model_json_schema())}

    def others(self, word: str) -> list[str]:
        """Every other word of the sets that have this one."""
        return sorted(
            {other for words in self._sets if word in words for other in words if isinstance(other, str)} - {word}
        )


def mutations(document: JsonObject, vocabulary: Vocabulary) -> Iterator[tuple[Path, JsonObject]]:
    """The path of each changed place and the document with that one place changed."""
    for path, value in _places(document):
        for other in _unequal(value, _others(value, vocabulary)):
            yield path, _object(replaced(document, path, partial(_instead, other)))
        yield path, _object(_without(document, path))
    yield (), {**document, "unknown": "field"}


def _instead(other: JsonValue, _: JsonValue) -> JsonValue:
    return other


def _enums(schema: object) -> Iterator[list[Any]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("enum"), list):
            yield schema["enum"]
        for inner in schema.values():
            yield from _enums(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _enums(inner)


def _places(value: JsonValue, path: Path = ()) -> Iterator[tuple[Path, JsonValue]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step), inner
        yield from _places(inner, (*path, step))


def _others(value: JsonValue, vocabulary: Vocabulary) -> Iterator[JsonValue]:
    """Values of the same type first: neighbours, signs, other words, fewer and more elements, another order."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, -value, value + 2**40)
    elif isinstance(value, float):
        yield from (value + 0.125, value - 0.125, -value, value * 2.0)
    elif isinstance(value, str):
        yield from (*vocabulary.others(value), f"{value}x", value.upper(), "")
    elif isinstance(value, list):
        yield from (value[1:], value[:-1], value[::-1], [*value, *value[:1]], [*value, None])
    elif isinstance(value, dict):
        yield {**value, "unknown": "field"}
    yield from OTHER_TYPES


def _unequal(value: JsonValue, others: Iterator[JsonValue]) -> Iterator[JsonValue]:
    """Each other value once; 1, 1.0 and True are three."""
    seen = {repr(value)}
    for other in others:
        if repr(other) not in seen:
            seen.add(repr(other))
            yield other


def _without(value: JsonValue, path: Path) -> JsonValue:
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        kept = {key: inner for key, inner in value.items() if rest or key != step}
        return {key: _without(inner, rest) if key == step else inner for key, inner in kept.items()}
    assert isinstance(value, list)
    if not rest:
        return [inner for place, inner in enumerate(value) if place != step]
    return [_without(inner, rest) if place == step else inner for place, inner in enumerate(value)]


def _object(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    return value
