"""`init_lora_weights`: which initializers leave the base alone, and which make factors that need a changed base."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from registry.formats.draft import Payload
from registry.formats.fields import Fields
from schemas.canonical import JsonValue


@dataclass(frozen=True)
class Initializer:
    """What an initializer leaves behind: the key of the manifest, and whether the factors fit the original base."""

    key: str
    payload: Payload


SAFE: Final = Initializer("none", "portable")
_SAFE_NAMES: Final = ("gaussian", "eva", "orthogonal", "mica")
_MUTATING: Final[Mapping[str, str]] = MappingProxyType(
    {"pissa": "pissa", "olora": "olora_init", "corda": "corda", "loftq": "loftq", "lora_ga": "lora_ga"}
)
"""They take the first product out of the base weight (LoftQ quantises it too), so native factors mean W only together
with that residual (V 0x06)."""
_PISSA_STEPS: Final = re.compile(r"pissa_niter_\d+")


def read_initializer(fields: Fields, value: JsonValue) -> Initializer:
    """The initializer a config names; absent is PEFT's default, B zero.

    Problems: `FEATURE_UNSUPPORTED` for a name PEFT 0.21 does not have.
    """
    if value is None or isinstance(value, bool):
        return SAFE
    name = value.lower() if isinstance(value, str) else ""
    if name in _SAFE_NAMES:
        return SAFE
    if _PISSA_STEPS.fullmatch(name):
        return Initializer("pissa", "native")
    if name in _MUTATING:
        return Initializer(_MUTATING[name], "native")
    hint = "Which base an unknown initializer leaves is not known; save the adapter converted to a plain LoRA."
    fields.refuse("FEATURE_UNSUPPORTED", "init_lora_weights", "an initializer PEFT knows", value, hint)
    return SAFE
