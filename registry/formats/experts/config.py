"""The forks' adapter_config.json: PEFT's of 2023 with fields of their own."""

from __future__ import annotations

from typing import Final

from registry.formats.directory import Directory
from registry.formats.draft import Targets
from registry.formats.fields import Fields
from registry.formats.peft.config import LoraSettings, read_settings
from registry.formats.peft.fields import CONFIG
from registry.formats.report import refuse_all
from schemas.canonical import JsonObject

MOST_EXPERTS: Final = 2**16
OWN: Final = frozenset(
    {"blc_alpha", "blc_weight", "enable_lora", "lora_nums", "merge_weights", "r_sum", "save_loranew"}
)


def own_document(directory: Directory) -> JsonObject:
    """The config, an empty one where there is none."""
    return directory.read_object(CONFIG)[0] if CONFIG in directory.names else {}


def read_own(document: JsonObject, key: str) -> tuple[LoraSettings, int]:
    """PEFT's settings, and the fork's own count.

    Raises:
        RefusedError: what `read_settings` refuses; `FEATURE_UNSUPPORTED` for merged linear layers.
    """
    fields = Fields(document, CONFIG)
    if document.get("enable_lora"):
        hint = "Save the adapter with separate layers."
        fields.refuse("FEATURE_UNSUPPORTED", "enable_lora", "no merged layers", document["enable_lora"], hint)
    count = fields.integer(key)
    if not 0 <= count <= MOST_EXPERTS:
        fields.refuse("CONFIG_FIELD_VALUE", key, f"0 to {MOST_EXPERTS}", count)
    refuse_all(fields.problems)
    return read_settings({name: value for name, value in document.items() if name not in OWN}), count


def targets(settings: LoraSettings) -> Targets:
    """PEFT's rule of 2023: a Linear layer whose path matches the expression, or ends in a listed name at any letter."""

    def targeted(module: str, kind: str, output: bool) -> bool:
        del output
        if kind != "linear":
            return False
        if settings.target.regex is not None:
            return settings.target.regex.fullmatch(module) is not None
        return module.endswith(settings.target.names)

    return targeted
