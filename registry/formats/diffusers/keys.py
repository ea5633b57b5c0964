"""diffusers' tensor names: ``<part>.<module>`` and the two factors under one of several spellings.

Since 0.23 the factors are PEFT's ``lora_A``, ``lora_B``; before, ``lora.down``, ``lora.up``, or
``lora_linear_layer.down`` in text encoders, or ``<projection>_lora.down`` beside a processor (diffusers 0.42,
`utils/state_dict_utils.py`). Parts are members of a pipeline: image models and text encoders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from registry.formats.report import problem, shown, told_once
from registry.formats.safetensors_file import TensorEntry
from schemas.errors import Problem

_PART: Final = re.compile(r"(?P<part>text_encoder(?:_[2-9])?)\.(?P<rest>.+)")
_IMAGE: Final = re.compile(r"(?:unet|transformer|transformer_2|prior|controlnet|vae)\.|.*\.processor\.")
_SIDES: Final = {"down": "a", "up": "b", "A": "a", "B": "b"}
_FORMS: Final = (
    re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])\.weight"),
    re.compile(r"(?P<module>.+)\.lora_linear_layer\.(?P<side>down|up)\.weight"),
    re.compile(r"(?P<module>.+)\.lora\.(?P<side>down|up)\.weight"),
)
_PROJECTION: Final = re.compile(r"(?P<before>.+)\.to_(?P<leaf>[qkv]|out)_lora\.(?P<side>down|up)\.weight")
_EXTRAS: Final = (
    ("magnitude", re.compile(r"(?P<module>.+)\.lora_magnitude_vector(?:\.weight)?")),
    ("bias", re.compile(r"(?P<module>.+)\.lora_B\.bias")),
    ("alpha", re.compile(r"(?P<module>.+)\.alpha")),
)
_ANY: Final = re.compile(r"(?:unet|transformer|text_encoder(?:_[2-9])?|prior)\..+|.+\.processor\..+_lora\..+")
LORA: Final = re.compile(r".*(?:\.lora[._]|_lora\.|\.alpha$).*")


@dataclass(frozen=True)
class DiffusersKeys:
    """Entries by module and role, the part they belong to, and what was wrong."""

    modules: Mapping[str, Mapping[str, TensorEntry]]
    part: str
    problems: tuple[Problem, ...]


def is_diffusers(names: Iterable[str]) -> bool:
    """Whether any name is of this grammar."""
    return any(_ANY.fullmatch(name) and LORA.fullmatch(name) for name in names)


def read_keys(entries: Iterable[TensorEntry]) -> DiffusersKeys:
    """Sort tensors by module.

    Problems: `KEY_UNKNOWN`, `KEY_UNSUPPORTED` for a part of a diffusion model, `KEY_REPEATED`, `PARTS_MIXED`.
    """
    modules: dict[str, dict[str, TensorEntry]] = {}
    problems: list[Problem] = []
    parts: set[str] = set()
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _PART.fullmatch(entry.name)
        found = _site(match["rest"]) if match is not None else None
        if match is None or found is None:
            problems.append(_unread(entry))
            continue
        parts.add(match["part"])
        module, role = found
        roles = modules.setdefault(module, {})
        if role in roles:
            hint = "Keep one of the two; they name the same factor."
            problems.append(problem("KEY_REPEATED", entry.place, "one tensor for a factor", "two", hint))
        roles[role] = entry
    if len(parts) > 1:
        path = (next(iter(next(iter(modules.values())).values())).file,)
        hint = "Split the file: an adapter has one base, and each text encoder is a base of its own."
        problems.append(problem("PARTS_MIXED", path, "one part of a pipeline", shown(sorted(parts)), hint))
    return DiffusersKeys(modules, min(parts, default=""), tuple(told_once(problems)))


def _site(name: str) -> tuple[str, str] | None:
    """Module and role of a name inside its part."""
    for form in _FORMS:
        match = form.fullmatch(name)
        if match is not None:
            return match["module"], _SIDES[match["side"]]
    match = _PROJECTION.fullmatch(name)
    if match is not None:
        return f"{match['before']}.{match['leaf']}_proj", _SIDES[match["side"]]
    for role, form in _EXTRAS:
        match = form.fullmatch(name)
        if match is not None:
            return match["module"], role
    return None


def _unread(entry: TensorEntry) -> Problem:
    if _IMAGE.match(entry.name):
        hint = "No diffusion model is a listed architecture; register only an adapter of a listed text model."
        expected = "an adapter of a listed architecture"
        return problem("KEY_UNSUPPORTED", entry.place, expected, "a part of a diffusion model", hint)
    hint = "A tensor that is not understood cannot be dropped."
    return problem(
        "KEY_UNKNOWN", entry.place, "text_encoder.<module>.lora_A.weight and the like", shown(entry.name), hint
    )
