"""Documents as people write them by hand, legal as they stand, and one-field changes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.canonical import JsonObject, JsonValue
from schemas.compute import ComputeContractManifest, built_in
from schemas.model import Manifest, validate
from tests.schemas.chain import Path, replaced, value_at

PARAMETERS: dict[str, JsonObject] = {
    "moa_attention": {"experts": 3, "k": 2},
    "switchhead": {"experts": 3, "k": 2, "map_heads": 2},
    "mod_training": {"capacity": 3},
    "mod_decode": {"threshold": 0.0},
    "mode_staged": {"capacity": 2, "experts": 2, "k": 1},
    "mode_integrated": {"experts": 2, "no_ops": 1},
    "moe_llava": {
        "experts": 4,
        "k": 2,
        "capacity_factor": 1.5,
        "evaluation_capacity_factor": 2.0,
        "capacity_minimum": 3,
    },
}
"""Figures of the document's teaching configurations (C 0x02 to 0x07)."""


def contract(method: str, fields: JsonObject | None = None, /, **changes: Any) -> JsonObject:
    """A compute contract document with its method's fields, some of them replaced."""
    document: JsonObject = {
        "method": method,
        "contract": built_in()[method].document() | (fields or {}),
        "parameters": {**PARAMETERS[method], "routed_layers": [0, 1]},
    }
    return document | changes


def leaves(value: JsonValue, path: Path = ()) -> Iterator[Path]:
    """The path of every value, containers too, except the document itself."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from leaves(inner, (*path, step))


def alternatives(value: JsonValue) -> Iterator[JsonValue]:
    """Other values of the same look, other types, and nothing."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value) + 0.5)
    elif isinstance(value, float):
        yield from (value + 0.125, -value - 1.0)
    elif isinstance(value, str):
        yield from (f"{value}x", "not_verified", "none")
    elif isinstance(value, list):
        yield from (value[1:], [*value, *value[:1]], value[::-1])
    elif isinstance(value, dict):
        yield {key: inner for index, (key, inner) in enumerate(value.items()) if index}
        yield {**value, "note": "free text"}
    yield from (None, [], {}, 7, "other")


def stated() -> tuple[Manifest, ...]:
    """A legal manifest of each kind that is written by hand."""
    return (
        validate(ComputeContractManifest, contract("moa_attention", route_modules=["layers.0.router"])),
        validate(ComputeContractManifest, contract("moe_llava")),
    )


def mutations(document: JsonObject) -> Iterator[tuple[Path, JsonObject]]:
    """The document with one value changed, once for each place and each other value."""
    for path in leaves(document):
        here = value_at(document, path)
        for other in alternatives(here):
            if other != here or type(other) is not type(here):
                found = replaced(document, path, lambda _, other=other: other)
                assert isinstance(found, dict)
                yield path, found
