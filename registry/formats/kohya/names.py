"""Flattened names read back: exactly one module of the base must flatten to the name.

The path begins at the part's own root, which may be the base or the bare model inside it, so a base module stands under
its name as stored, without its head model's prefix, and with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from registry.formats.report import problem, shown
from schemas.errors import Path, Problem


def flattened(module: str) -> str:
    """A module's path as kohya writes it."""
    return module.replace(".", "_")


def resolve(
    flat_names: Mapping[str, Path], modules: Collection[str], prefix: str
) -> tuple[dict[str, str], list[Problem]]:
    """The base's module for every flattened name.

    Args:
        flat_names: by flattened name, where it stands.
        modules: names of the base.
        prefix: what a head model of the base's type puts before the bare model's names.

    Problems: `TARGET_MODULE_MISSING`, `MODULE_NAME_AMBIGUOUS`, `KEY_REPEATED`.
    """
    known: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        for form in _forms(module, prefix):
            known[flattened(form)].add(module)
    found: dict[str, str] = {}
    problems = []
    taken: dict[str, str] = {}
    for flat, path in flat_names.items():
        candidates = sorted(known.get(flat, ()))
        if len(candidates) != 1:
            problems.append(_unresolved(flat, path, candidates))
        elif candidates[0] in taken:
            hint = "Keep one of the two; they name the same layer."
            observed = f"{shown(flat)} and {shown(taken[candidates[0]])}"
            problems.append(problem("KEY_REPEATED", path, f"one name for {shown(candidates[0])}", observed, hint))
        else:
            found[flat] = candidates[0]
            taken[candidates[0]] = flat
    return found, problems


def _forms(module: str, prefix: str) -> Iterable[str]:
    return {module, module.removeprefix(prefix), prefix + module.removeprefix(prefix)}


def _unresolved(flat: str, path: Path, candidates: list[str]) -> Problem:
    if candidates:
        hint = "Rename the tensor to the full path of its layer under PEFT's names; the flattened one says too little."
        observed = shown(candidates)
        return problem("MODULE_NAME_AMBIGUOUS", path, f"one layer that flattens to {shown(flat)}", observed, hint)
    hint = "Register the adapter against the base it was trained on."
    return problem("TARGET_MODULE_MISSING", path, "a layer of the base", f"none flattens to {shown(flat)}", hint)
