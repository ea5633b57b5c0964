"""Reading a composition spec from YAML or JSON text."""

from __future__ import annotations

import secrets
from typing import Any, Final

import yaml
from pydantic import ValidationError

from registry.errors import Problem, RefusedError, UsageProblemError
from schemas.canonical import JsonObject, canonical_bytes
from schemas.model import problems_of
from schemas.spec import CompositionSpec, with_seed

MAX_SPEC_BYTES: Final = 1 << 20
_HINT: Final = "See `registry admit --help` and docs/concepts.md for the fields of a spec."
_FORM: Final = "Write one mapping in YAML or JSON, without anchors, aliases or a key twice."


class _StrictLoader(yaml.SafeLoader):
    """YAML without what silently changes meaning: no anchors, no aliases, no key twice."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.YAMLError(f"keys given twice: {', '.join(twice)}")
        return super().construct_mapping(node, deep)


def parse_spec(text: bytes) -> CompositionSpec:
    """Parse a spec.

    Raises:
        UsageProblemError: `SPEC_UNPARSABLE` or `SPEC_INVALID`, one problem a field.
    """
    return spec_from(parse_document(text))


def parse_document(text: bytes) -> JsonObject:
    """A mapping written in YAML or JSON.

    Raises:
        UsageProblemError: `SPEC_UNPARSABLE`, or `SPEC_INVALID` when it is no mapping.
    """
    if len(text) > MAX_SPEC_BYTES:
        raise UsageProblemError(_problem("SPEC_UNPARSABLE", f"at most {MAX_SPEC_BYTES} bytes", str(len(text)), _FORM))
    try:
        document = yaml.load(text.decode("utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageProblemError(_problem("SPEC_UNPARSABLE", "YAML or JSON", str(error)[:300], _FORM)) from error
    return _mapping(document)


def spec_from(document: object) -> CompositionSpec:
    """Validate and complete a parsed spec."""
    try:
        spec = CompositionSpec.model_validate_json(canonical_bytes(_mapping(document)))
    except ValidationError as error:
        raise UsageProblemError(*problems_of(error, "SPEC_INVALID")) from error
    return complete(spec)


def _mapping(document: object) -> JsonObject:
    if not isinstance(document, dict):
        raise UsageProblemError(_problem("SPEC_INVALID", "a mapping", type(document).__name__, _FORM))
    try:
        canonical_bytes(document)
    except (RefusedError, TypeError) as error:
        raise UsageProblemError(_problem("SPEC_INVALID", "finite numbers, texts, lists", str(error))) from error
    return document


def complete(spec: CompositionSpec) -> CompositionSpec:
    """Draw what the spec leaves to chance, DARE's seed, so that what is asked can be asked again."""
    return with_seed(spec, str(secrets.randbits(64)))


def _problem(code: str, expected: str, observed: str, hint: str = _HINT) -> Problem:
    return Problem(code=code, expected=expected, observed=observed, hint=hint)
