"""PEFT's tensor names: ``base_model.model.<module>.lora_A[.<slot>].weight`` becomes a module and a role.

The slot name is how one process called the adapter; it is no identity, but one file holds one slot. A prefix that a
wrapping model adds is removed by a named rule only, and only when it fits every key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from registry.formats.base.naming import MODEL_TYPES
from registry.formats.report import problem, shown
from schemas.base import BaseManifest
from schemas.errors import Problem

ROOT: Final = "base_model.model."
WEIGHTS: Final = "adapter_model.safetensors"
Role = Literal["lora_A", "lora_B"]

_FACTOR: Final = re.compile(r"(?P<module>.+)\.(?P<role>lora_[AB])(?:\.(?P<slot>[^.]+))?\.weight")
_FEATURES: Final = (
    (re.compile(r"\.lora_magnitude_vector\b"), "DoRA"),
    (re.compile(r"\.lora_embedding_[AB]\b"), "LoRA on an embedding"),
    (re.compile(r"\.lora_B(?:\.[^.]+)?\.bias$"), "a bias in lora_B"),
    (re.compile(r"\.lora_E\b|\.ranknum\b"), "AdaLoRA"),
    (re.compile(r"\.lora_diag\b"), "KaSA"),
    (re.compile(r"\.lora_[AB]\d|\.lora_route\b"), "routed experts"),
    (re.compile(r"\.hada_|\.lokr_|\.vera_lambda_|\.oft_"), "another PEFT method"),
    (re.compile(r"\.modules_to_save\.|\.original_module\."), "fully trained modules"),
    (re.compile(r"\.token_adapter\.|\.trainable_tokens_"), "trainable token rows"),
    (re.compile(r"\.base_layer\."), "base weights"),
    (re.compile(r"(?:^|\.)(?:classifier|score|lm_head|pooler)(?:\.[^.]+)*\.(?:weight|bias)$"), "a trained head"),
)


@dataclass(frozen=True)
class Wrapper:
    """How module names in the file become the base's: drop `prefix` (empty: they are the same)."""

    rule: str
    prefix: str

    def base_name(self, module: str) -> str:
        """The base's name of a module of the adapter."""
        return module.removeprefix(self.prefix)

    def adapter_name(self, module: str) -> str:
        """The adapter's name of a module of the base."""
        return self.prefix + module


@dataclass(frozen=True)
class FactorKeys:
    """Tensor names by module and role, the slot they were saved under (null: none), and what was wrong."""

    pairs: Mapping[str, Mapping[Role, str]]
    slot: str | None
    problems: tuple[Problem, ...]


def read_keys(names: Iterable[str]) -> FactorKeys:
    """Sort tensor names into pairs.

    Problems: `KEY_UNKNOWN`, `KEY_UNSUPPORTED` (with the feature), `SLOTS_MIXED`, `FACTOR_UNPAIRED`.
    """
    pairs: dict[str, dict[Role, str]] = {}
    problems: list[Problem] = []
    slots: set[str | None] = set()
    for name in sorted(names):
        match = _FACTOR.fullmatch(name.removeprefix(ROOT)) if name.startswith(ROOT) else None
        if match is None:
            problems.append(_unknown(name))
            continue
        slots.add(match["slot"])
        role: Role = "lora_A" if match["role"] == "lora_A" else "lora_B"
        pairs.setdefault(match["module"], {})[role] = name
    if len(slots) > 1:
        hint = "Save each adapter into a directory of its own."
        problems.append(problem("SLOTS_MIXED", (WEIGHTS,), "one adapter slot", shown(sorted(map(str, slots))), hint))
    problems += [_unpaired(module, roles) for module, roles in pairs.items() if len(roles) < 2]
    return FactorKeys(pairs, next(iter(slots), None), tuple(problems))


def find_wrapper(modules: Collection[str], base: BaseManifest, base_modules: Collection[str]) -> Wrapper:
    """The named rule under which the adapter's module names are the base's.

    A head model keeps the bare model under a prefix (`bert.`, `model.`). The rule applies when the adapter has it on
    every module and the base on none.
    """
    prefix = MODEL_TYPES[base.architecture.model_type].prefix
    on_all = bool(modules) and all(module.startswith(prefix) for module in modules)
    if on_all and not any(module.startswith(prefix) for module in base_modules):
        return Wrapper(f"remove_{prefix.removesuffix('.')}_prefix", prefix)
    return Wrapper("none", "")


def _unknown(name: str) -> Problem:
    for pattern, feature in _FEATURES:
        if pattern.search(name):
            hint = f"{feature} is not read yet; save a plain LoRA without it."
            return problem("KEY_UNSUPPORTED", (WEIGHTS, name), "lora_A and lora_B weights", feature, hint)
    expected = f"{ROOT}<module>.lora_A.weight or lora_B.weight"
    hint = "Save the adapter with PEFT's save_pretrained; a tensor that is not understood cannot be dropped."
    return problem("KEY_UNKNOWN", (WEIGHTS, name), expected, shown(name), hint)


def _unpaired(module: str, roles: Mapping[Role, str]) -> Problem:
    there = next(iter(roles))
    missing = "lora_B" if there == "lora_A" else "lora_A"
    hint = "The file is incomplete: save the adapter again."
    return problem("FACTOR_UNPAIRED", (WEIGHTS, roles[there]), f"{missing} of {shown(module)}", "only " + there, hint)
