"""PEFT's matching rules for module names, exactly: targets, excludes, layers, rank and alpha patterns.

Three rules for patterns were in use. Before 0.14 the first key that fits, of rank and alpha patterns together, gave
both values; in 0.14 each had its own first key; both wanted a dot in front of the key. Since 0.15 the key may stand at
the start, and is one group.

Expressions come from outside and Python's `re` has no time limit, so those that can easily run away are not compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

LONGEST_PATTERN: Final = 4096
MOST_REPEATS: Final = 5
"""Backtracking costs up to about length^repeats; module names have some sixty characters."""
MOST_ALTERNATIVES: Final = 64
_BACK_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.", re.DOTALL)
_QUANTIFIER: Final = re.compile(r"(?<!\()(?:[*+?]|\{\d*,?\d*\})[?+]?")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_FIRST_NUMBER: Final = re.compile(r".*?\.[^.]*\.(?P<idx>\d+)\.")


Era = Literal["joint", "dotted", "grouped"]
"""The pattern rule of PEFT before 0.14, of 0.14, and since 0.15."""


@dataclass(frozen=True)
class ModulePattern:
    """A key of `rank_pattern` or `alpha_pattern` with its value; `regex` as since 0.15, `dotted` as before."""

    key: str
    regex: re.Pattern[str]
    dotted: re.Pattern[str]
    value: float


@dataclass(frozen=True)
class Matcher:
    """A set of module names: by leaf or full name, by a regular expression of the full name, or every Linear layer."""

    names: tuple[str, ...] = ()
    regex: re.Pattern[str] | None = None
    all_linear: bool = False

    def exact(self, module: str) -> bool:
        """Whether the list holds the full name."""
        return module in self.names

    def __call__(self, module: str) -> bool:
        """PEFT's rule: full match of the expression, or equal to a listed name, or ending in ``.<listed name>``."""
        if self.regex is not None:
            return self.regex.fullmatch(module) is not None
        return module in self.names or any(module.endswith(f".{name}") for name in self.names)


def compile_regex(text: str) -> re.Pattern[str] | None:
    """A regular expression, or null when it is none or could run away."""
    return None if len(text) > LONGEST_PATTERN or _runs_away(text, MOST_REPEATS) else _compiled(text)


def module_pattern(key: str, value: float) -> ModulePattern | None:
    """What PEFT builds around a pattern key (`get_pattern_key`), or null where it is no safe expression."""
    regex, dotted = _wrapped(key, rf"(.*\.)?({key})$"), _wrapped(key, rf".*\.{key}$")
    return None if regex is None or dotted is None else ModulePattern(key, regex, dotted, value)


def eras_of(version: str | None, keys: Iterable[str]) -> tuple[Era, ...]:
    """The rules a config may have been written for: one where the version or an anchored key tells, else all.

    An anchored key (`^…`) could match nothing before 0.15, so whoever wrote one had the newer rule.
    """
    release = release_of(version)
    if any(key.startswith("^") for key in keys):
        return ("grouped",)
    if release is None:
        return ("grouped", "dotted", "joint")
    return ("joint",) if release < (0, 14) else ("dotted",) if release < (0, 15) else ("grouped",)


def release_of(version: str | None) -> tuple[int, int] | None:
    """Major and minor number of a version; null where it is none."""
    number = _VERSION.match(version or "")
    return None if number is None else (int(number[1]), int(number[2]))


def values_for(
    ranks: Sequence[ModulePattern], alphas: Sequence[ModulePattern], module: str, era: Era
) -> tuple[float | None, float | None]:
    """Rank and alpha that patterns give a module under one rule; null where none speaks of it."""
    if era == "joint":
        key = _first_key((*ranks, *alphas), module, era)
        keys = (key, key)
    else:
        keys = (_first_key(ranks, module, era), _first_key(alphas, module, era))
    rank, alpha = (
        next((pattern.value for pattern in side if pattern.key == key), None)
        for side, key in zip((ranks, alphas), keys, strict=True)
    )
    return rank, alpha


def _first_key(patterns: Iterable[ModulePattern], module: str, era: Era) -> str:
    """The first key that fits, else the module's own name, as PEFT looks values up."""
    for pattern in patterns:
        if (pattern.regex if era == "grouped" else pattern.dotted).match(module):
            return pattern.key
    return module


def matching(patterns: Iterable[ModulePattern], module: str) -> tuple[ModulePattern, ...]:
    """Every pattern that applies to a module. PEFT takes the first in the order of the file, so several are only one
    thing when their values agree."""
    every = tuple(patterns)
    found = tuple(pattern for pattern in every if pattern.regex.match(module))
    return found or tuple(pattern for pattern in every if pattern.key == module)


def compile_layers(pattern: str) -> re.Pattern[str] | None:
    """What PEFT builds around a name of `layers_pattern`: the first number behind it is the layer."""
    return _wrapped(pattern, rf"(?:^|.*?\.){pattern}\.(?P<idx>\d+)\.")


def layer_index(module: str, layer_patterns: Iterable[re.Pattern[str]]) -> int | None:
    """The layer a module lies in: the first numbered segment, or the one behind the first pattern that fits."""
    for expression in tuple(layer_patterns) or (_FIRST_NUMBER,):
        match = expression.match(module)
        if match is not None:
            return int(match["idx"])
    return None


def _wrapped(key: str, text: str) -> re.Pattern[str] | None:
    """An expression PEFT puts around a key, if the key is one by itself and leaves room for it."""
    if len(key) > LONGEST_PATTERN or _runs_away(key, MOST_REPEATS - 2) or _compiled(key) is None:
        return None
    return _compiled(text)


def _compiled(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError, FutureWarning):
        return None


def _runs_away(text: str, most_repeats: int) -> bool:
    """Whether a repeated group holds a choice, or there are too many choices in a row, or a back reference."""
    if _BACK_REFERENCE.search(text):
        return True
    plain = _QUANTIFIER.sub(_sign, _CLASS.sub("c", text)).replace("(?", "(")
    groups = [False]
    for index, character in enumerate(plain):
        if character == "(":
            groups.append(False)
        elif character == ")" and len(groups) > 1:
            chooses = groups.pop()
            if chooses and plain[index + 1 : index + 2] == "*":
                return True
            groups[-1] = groups[-1] or chooses
        elif character in "*?|":
            groups[-1] = True
    return plain.count("*") + plain.count("?") > most_repeats or plain.count("|") > MOST_ALTERNATIVES


def _sign(match: re.Match[str]) -> str:
    return "?" if match[0].startswith("?") else "*"
