"""What an adapter's model card says beside the function: licence, data, the base it was trained on.

A card is README.md with YAML between two lines of three dashes, as the hub reads it. What nobody says is
`not_verified`; a card that cannot be read says nothing, since it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from registry.errors import RefusedError
from registry.formats.directory import Directory
from registry.formats.readings import Note
from registry.formats.yaml_text import yaml_object
from schemas.canonical import JsonObject, JsonValue

CARD: Final = "README.md"
LARGEST_FRONT: Final = 64 * 2**10
LONGEST: Final = 512
ASKED: Final = {"data": "datasets", "licence": "license", "training_base": "base_model"}
"""By our name, the card's."""


def with_card(directory: Directory, notes: Mapping[str, Note]) -> dict[str, Note]:
    """A producer's notes and, where it does not say, the card's; `training` is the method that tensors cannot show."""
    front = _front(directory)
    found: dict[str, Note] = {key: _said(front.get(theirs)) for key, theirs in ASKED.items()}
    return found | {"training": "not_verified"} | dict(notes)


def _front(directory: Directory) -> JsonObject:
    if CARD not in directory.names:
        return {}
    with directory.open(CARD) as stream:
        data = stream.read(LARGEST_FRONT).replace(b"\r\n", b"\n")
    start, line, rest = data.partition(b"---\n")
    front, closed, _ = rest.partition(b"\n---")
    if start.strip() or not line or not closed:
        return {}
    try:
        return yaml_object(front, CARD)
    except RefusedError:
        return {}


def _said(value: JsonValue) -> Note:
    if isinstance(value, str) and value:
        return value[:LONGEST]
    if isinstance(value, list) and value:
        return tuple(sorted(str(item)[:LONGEST] for item in value[:LONGEST]))
    return "not_verified"
