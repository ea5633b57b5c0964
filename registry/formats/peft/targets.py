"""Which modules of a base a config means, and the rank and scale it gives each."""

from __future__ import annotations

from collections.abc import Collection

from registry.formats.peft.config import CONFIG, LoraSettings
from registry.formats.peft.patterns import ModulePattern, layer_index, matching
from registry.formats.report import problem, shown
from schemas.adapter import Scale, make_scale
from schemas.errors import Problem


def targeted(settings: LoraSettings, module: str, *, linear: bool, output: bool) -> bool:
    """Whether PEFT adapts a module (`check_target_module_exists`, `_maybe_include_all_linear_layers`).

    Excludes come first; a full name in the list wins over the layer choice, a leaf name does not.
    """
    if settings.exclude(module):
        return False
    if settings.target.all_linear:
        return linear and not output
    if not settings.target(module):
        return False
    if not settings.layers or settings.target.exact(module):
        return True
    return layer_index(module, settings.layer_patterns) in settings.layers


def rank_of(settings: LoraSettings, module: str) -> int:
    """The rank the config gives a module."""
    found = matching(settings.rank_patterns, module)
    return int(found[0].value) if found else settings.rank


def scale_of(settings: LoraSettings, module: str) -> Scale:
    """The scale the config gives a module: alpha / r or alpha / sqrt(r) with that module's own alpha and rank."""
    found = matching(settings.alpha_patterns, module)
    alpha = found[0].value if found else settings.alpha
    return make_scale(alpha, settings.rule, rank_of(settings, module))


def overlap_problems(settings: LoraSettings, modules: Collection[str]) -> list[Problem]:
    """`PATTERN_OVERLAP`: PEFT takes the first match, but saving sorts the keys, so the meaning would hang on order."""
    sides = (("rank_pattern", settings.rank_patterns), ("alpha_pattern", settings.alpha_patterns))
    return [
        found
        for field, patterns in sides
        for module in sorted(modules)
        for found in _overlap(field, matching(patterns, module), module)
    ]


def _overlap(field: str, patterns: tuple[ModulePattern, ...], module: str) -> list[Problem]:
    if len({pattern.value for pattern in patterns}) < 2:
        return []
    observed = shown({pattern.key: pattern.value for pattern in patterns})
    hint = "Give each module one value, for example by its full name."
    return [problem("PATTERN_OVERLAP", (CONFIG, field, module), "one value for the module", observed, hint)]
