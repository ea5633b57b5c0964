"""YAML of foreign files as plain JSON values: no aliases, no tags, bounded in size and in what is open at once."""

from __future__ import annotations

from math import isfinite
from typing import Final

import yaml

from registry.errors import RefusedError
from registry.formats.report import problem, shown
from schemas.canonical import JsonObject, JsonValue
from schemas.errors import Problem

MOST_BRACKETS: Final = 1000
"""YAML is read in time that grows with the square of what is open at once."""
LARGEST_NUMBER: Final = 1e300


def yaml_object(data: bytes, name: str) -> JsonObject:
    """A mapping of plain values; dates and the like become text.

    Raises:
        RefusedError: `YAML_INVALID`.
    """
    if data.count(b"[") + data.count(b"{") > MOST_BRACKETS:
        raise RefusedError(_invalid(name, f"more than {MOST_BRACKETS} brackets"))
    try:
        document = _plain(_Loader(data).get_single_data())
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise RefusedError(_invalid(name, type(error).__name__)) from error
    if not isinstance(document, dict):
        raise RefusedError(_invalid(name, type(document).__name__))
    return document


class _Loader(yaml.SafeLoader):
    """Plain values without references: a file of aliases to aliases is larger than any memory once it is looked at."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("alias")
        return super().compose_node(parent, index)


def _plain(value: object) -> JsonValue:
    """A YAML value as a JSON one.

    Raises:
        ValueError: a number JSON cannot hold.
    """
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | float):
        if not isfinite(value) or abs(value) > LARGEST_NUMBER:
            raise ValueError(shown(value))
        return value
    return str(value)


def _invalid(name: str, observed: str) -> Problem:
    hint = "Restore the original file."
    return problem("YAML_INVALID", (name,), "a mapping of plain values without aliases", observed, hint)
