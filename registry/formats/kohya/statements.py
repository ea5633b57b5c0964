"""What the trainer wrote into the header beside the tensors: module, options, base, licence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from registry.formats.readings import Note

_KEPT: Final = {
    "modelspec.architecture": "architecture",
    "modelspec.license": "licence",
    "modelspec.title": "title",
    "ss_base_model_version": "base_model_version",
    "ss_network_alpha": "network_alpha",
    "ss_network_dim": "network_dim",
    "ss_network_module": "network_module",
    "ss_output_name": "output_name",
    "ss_sd_model_hash": "base_model_hash",
    "ss_sd_model_name": "base_model_name_or_path",
    "ss_sd_scripts_commit_hash": "producer_commit",
    "ss_training_comment": "comment",
}
_NOTHING: Final = frozenset({"", "None", "{}"})
LONGEST: Final = 512


def statements(metadata: Mapping[str, str]) -> dict[str, Note]:
    """Provenance the function does not show: two learning rates (LoRA+), a frozen lora_down (LoRA-FA), base, licence.

    `training` names the method that the file's algebra cannot tell from plain LoRA; `not_verified` where nothing says.
    """
    notes: dict[str, Note] = {
        ours: metadata[theirs][:LONGEST] for theirs, ours in _KEPT.items() if metadata.get(theirs, "") not in _NOTHING
    }
    arguments = _arguments(metadata.get("ss_network_args", ""))
    if arguments:
        notes["network_args"] = tuple(f"{key}={value}"[:LONGEST] for key, value in sorted(arguments.items()))
    notes["training"] = _training(metadata.get("ss_network_module", ""), arguments)
    return notes


def _training(module: str, arguments: Mapping[str, str]) -> str:
    if module.endswith("lora_fa"):
        return "lora_fa"
    if any(key.startswith("loraplus_") and value not in {"1", "1.0", "None"} for key, value in arguments.items()):
        return "lora_plus"
    return "lora" if module else "not_verified"


def _arguments(text: str) -> dict[str, str]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else {}
