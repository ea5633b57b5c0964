"""Rotary position settings: three spellings over the releases of transformers, one record.

Old: `rope_theta` beside `rope_scaling`. New: `rope_parameters` with everything in it, for Gemma 3 one for each kind of
layer. `type` is an older name of `rope_type`. As in transformers, a `rope_scaling` that says anything wins as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from registry.formats.fields import Fields
from registry.formats.report import located
from schemas.architectures import Rope
from schemas.canonical import JsonObject, JsonValue

Parameter = float | bool | str | tuple[float, ...] | None
ROPE_KEYS: Final = frozenset({"rope_theta", "rope_scaling", "rope_parameters", "rope_interleaved"})
_TYPES: Final = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
_NAMED: Final = frozenset({"rope_theta", "rope_type", "type"})
_FROM_LENGTH: Final = frozenset({"llama3", "yarn", "longrope"})
_ORIGINAL: Final = "original_max_position_embeddings"
_PHI3_NAMES: Final = {"su": "longrope", "yarn": "longrope"}
_YARN: Final[dict[str, Parameter]] = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"


@dataclass(frozen=True)
class RopeDefaults:
    """What a model type gives where its config is silent.

    Attributes:
        length: positions the model has, `max_position_embeddings`.
        theta: base of the angles.
        partial: the part of each head that is turned, for model types that may turn a part only.
        original: positions before scaling, for the model type (Phi-3) that states them beside the rotary settings.
    """

    length: int
    theta: float = 10_000.0
    partial: float | None = None
    original: int | None = None


def read_rope(fields: Fields, defaults: RopeDefaults) -> Rope:
    """The one rotary setting of a model."""
    _refuse_interleaved(fields)
    given = dict(fields.table("rope_scaling") or fields.table("rope_parameters"))
    if defaults.partial is not None:
        given.setdefault("partial_rotary_factor", fields.number("partial_rotary_factor", defaults.partial))
    return _rope(fields, given, fields.number("rope_theta", defaults.theta), defaults)


def read_ropes(fields: Fields, defaults: RopeDefaults) -> tuple[Rope, Rope]:
    """Gemma 3's two settings: of the full layers and of the sliding ones."""
    _refuse_interleaved(fields)
    nested = Fields(fields.table("rope_parameters"), *fields.path, "rope_parameters")
    for key in sorted(nested.document.keys() - {_FULL, _SLIDING}):
        nested.refuse("CONFIG_KEY_UNKNOWN", key, f"{_FULL} or {_SLIDING}", nested.document[key])
    full = dict(nested.table(_FULL)) | dict(fields.table("rope_scaling"))
    sliding = dict(nested.table(_SLIDING))
    fields.problems += nested.problems
    return (
        _rope(fields, full, fields.number("rope_theta", 1_000_000.0), defaults),
        _rope(fields, sliding, fields.number("rope_local_base_freq", 10_000.0), defaults),
    )


def _rope(fields: Fields, given: JsonObject, theta: float, defaults: RopeDefaults) -> Rope:
    inner = Fields(given, *fields.path)
    kind = inner.text("rope_type", inner.text("type", "default"))
    if defaults.original is not None:
        kind = _PHI3_NAMES.get(kind, kind)
    if kind not in _TYPES:
        fields.refuse("CONFIG_FIELD_VALUE", "rope_type", f"one of {', '.join(_TYPES)}", kind)
        kind = "default"
    keys = (key for key in sorted(given) if kind != "default" or key == "partial_rotary_factor")
    found = {key: _parameter(inner, key, given[key]) for key in keys if key not in _NAMED and given[key] is not None}
    base = inner.number("rope_theta", theta)
    fields.problems += inner.problems
    with located(*fields.path):
        return Rope(rope_type=kind, rope_theta=base, parameters=_filled(found, kind, defaults))


def _filled(found: dict[str, Parameter], kind: str, defaults: RopeDefaults) -> dict[str, Parameter]:
    """Parameters with what the code takes where they are silent; a head turned whole says nothing."""
    if kind in _FROM_LENGTH:
        found.setdefault(_ORIGINAL, float(defaults.length))
        if defaults.original is not None:
            found[_ORIGINAL] = float(defaults.original)
    if kind == "yarn":
        found = _YARN | found
    return {key: value for key, value in found.items() if (key, value) != ("partial_rotary_factor", 1.0)}


def _parameter(fields: Fields, key: str, value: JsonValue) -> Parameter:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, list):
        numbers = tuple(float(item) for item in value if isinstance(item, int | float) and not isinstance(item, bool))
        if len(numbers) != len(value):
            fields.refuse("CONFIG_FIELD_TYPE", key, "numbers", value)
        return numbers
    return fields.number(key)


def _refuse_interleaved(fields: Fields) -> None:
    if fields.document.get("rope_interleaved"):
        fields.refuse("CONFIG_FIELD_VALUE", "rope_interleaved", "false", True)
