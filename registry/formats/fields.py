"""Typed reading of a foreign configuration: wrong types and missing fields are collected, then refused together."""

from __future__ import annotations

from typing import TypeVar

from registry.formats.report import problem, shown
from schemas.canonical import JsonObject, JsonValue
from schemas.errors import Problem

T = TypeVar("T")
_HINT = "Correct the field, or restore the file the producer wrote."


class Fields:
    """The fields of one JSON object. Each reader returns a usable value in any case and remembers what was wrong."""

    def __init__(self, document: JsonObject, *path: str) -> None:
        self.document = document
        self.path = path
        self.problems: list[Problem] = []

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; null counts as absent."""
        value = self._present(key, default)
        if type(value) is int:
            return value
        return self._wrong(key, "an integer", value, 1)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number, whole or not; null counts as absent."""
        value = self._present(key, default)
        if type(value) in (int, float):
            assert isinstance(value, int | float)
            return float(value)
        return self._wrong(key, "a number", value, 1.0)

    def text(self, key: str, default: str | None = None) -> str:
        """A string; null counts as absent."""
        value = self._present(key, default)
        if isinstance(value, str):
            return value
        return self._wrong(key, "a string", value, "")

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """True or false; null counts as absent."""
        value = self._present(key, default)
        if isinstance(value, bool):
            return value
        return self._wrong(key, "true or false", value, False)

    def table(self, key: str) -> JsonObject:
        """An object; null or absent is empty."""
        value = self._present(key, {})
        if isinstance(value, dict):
            return value
        empty: JsonObject = {}
        return self._wrong(key, "an object", value, empty)

    def texts(self, key: str) -> str | tuple[str, ...] | None:
        """A string, or the sorted set of strings of a list; null when absent."""
        value = self.document.get(key)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, list):
            found = {item for item in value if isinstance(item, str)}
            if all(isinstance(item, str) for item in value):
                return tuple(sorted(found))
        return self._wrong(key, "a string or a list of strings", value, ())

    def refuse(self, code: str, key: str, expected: str, value: object, hint: str = _HINT) -> None:
        """Remember a problem of one field."""
        self.problems.append(problem(code, (*self.path, key), expected, shown(value), hint))

    def _present(self, key: str, default: JsonValue) -> JsonValue:
        value = self.document.get(key)
        return default if value is None else value

    def _wrong(self, key: str, expected: str, value: JsonValue, fallback: T) -> T:
        if value is None:
            self.refuse("CONFIG_FIELD_MISSING", key, expected, "no such field")
        else:
            self.refuse("CONFIG_FIELD_TYPE", key, expected, value)
        return fallback
