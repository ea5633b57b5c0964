"""Which modules of a base a config means, and the rank and scale it gives each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from registry.formats.peft.config import LoraSettings
from registry.formats.peft.fields import CONFIG
from registry.formats.peft.patterns import ModulePattern, layer_index, matching, values_for
from registry.formats.report import problem, shown
from schemas.adapter import Scale, make_scale
from schemas.errors import Problem

_TRIPLET_SHIFT: Final = 1e-5
"""What PEFT adds to AdaLoRA's rank number before it divides by it."""


def targeted(settings: LoraSettings, module: str, kind: str, output: bool) -> bool:
    """Whether PEFT adapts a module (`check_target_module_exists`, `_maybe_include_all_linear_layers`).

    Excludes come first; a full name in the list wins over the layer choice, a leaf name does not. Parameters are
    adapted by name only.
    """
    parameter = module if kind == "parameter" else f"{module}.weight"
    if any(parameter == name or parameter.endswith(f".{name}") for name in settings.parameters):
        return True
    if kind == "parameter":
        return False
    if settings.exclude(module):
        return False
    if settings.target.all_linear:
        return kind in {"linear", "conv1d"} and not output
    if not settings.target(module):
        return False
    if not settings.layers or settings.target.exact(module):
        return True
    return layer_index(module, settings.layer_patterns) in settings.layers


def rank_and_scale(settings: LoraSettings, module: str, rank: int) -> tuple[int, Scale, list[Problem]]:
    """The rank and scale the config gives a module, and what is wrong about it.

    Args:
        rank: what the tensors have; decides between pattern rules where no version does.

    Problems: `PATTERN_AMBIGUOUS`, `PATTERN_OVERLAP`.
    """
    if settings.method == "ADALORA":
        return settings.triplets.get(module, settings.rank), _triplet_scale(settings), []
    found = list(dict.fromkeys(_values(settings, module)))
    fitting = [pair for pair in found if pair[0] == rank] or found
    problems = [_ambiguous(module, fitting)] if len(fitting) > 1 else []
    problems += _overlaps(settings, module)
    declared, alpha = fitting[0]
    return declared, make_scale(alpha, settings.rule, max(declared, 1)), problems


def _values(settings: LoraSettings, module: str) -> Iterable[tuple[int, float]]:
    for era in settings.eras:
        rank, alpha = values_for(settings.rank_patterns, settings.alpha_patterns, module, era)
        yield settings.rank if rank is None else int(rank), settings.alpha if alpha is None else alpha


def _triplet_scale(settings: LoraSettings) -> Scale:
    """AdaLoRA divides by the initial rank, also after pruning (V 0x03, pinned code)."""
    alpha = settings.alpha if settings.alpha > 0 else float(settings.rank)
    return make_scale(alpha / (settings.rank + _TRIPLET_SHIFT), "explicit", 1)


def _overlaps(settings: LoraSettings, module: str) -> list[Problem]:
    """`PATTERN_OVERLAP`: PEFT takes the first match, but saving sorts the keys, so the meaning would hang on order."""
    sides = (("rank_pattern", settings.rank_patterns), ("alpha_pattern", settings.alpha_patterns))
    return [found for field, patterns in sides for found in _overlap(field, matching(patterns, module), module)]


def _overlap(field: str, patterns: tuple[ModulePattern, ...], module: str) -> list[Problem]:
    if len({pattern.value for pattern in patterns}) < 2:
        return []
    observed = shown({pattern.key: pattern.value for pattern in patterns})
    hint = "Give each module one value, for example by its full name."
    return [problem("PATTERN_OVERLAP", (CONFIG, field, module), "one value for the module", observed, hint)]


def _ambiguous(module: str, found: list[tuple[int, float]]) -> Problem:
    observed = " or ".join(f"rank {rank}, alpha {alpha:g}" for rank, alpha in found)
    hint = "PEFT matched patterns differently before 0.15: write peft_version, or give each module by its full name."
    path = (CONFIG, "alpha_pattern", module)
    return problem("PATTERN_AMBIGUOUS", path, "one meaning under every version of PEFT", observed, hint)
