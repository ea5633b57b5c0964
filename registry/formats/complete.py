"""Completeness: the modules of a file are exactly those its config targets in the base."""

from __future__ import annotations

from collections.abc import Mapping

from registry.formats.base.modules import Layer, output_modules
from registry.formats.draft import Draft, Piece
from registry.formats.report import problem
from registry.formats.wrappers import Naming
from schemas.base import BaseManifest
from schemas.errors import Problem


def candidates(piece: Piece) -> tuple[str, ...]:
    """The names of the layer this factor can be of."""
    return tuple(f"{piece.module}.{name.rpartition('.')[2]}" for name in piece.parameters) or (piece.module,)


def completeness_problems(
    draft: Draft, base: BaseManifest, naming: Naming, known: Mapping[str, Layer], placed: Mapping[str, Piece]
) -> list[Problem]:
    """The file's modules are exactly those the config targets in the base; patterns see the adapter's names.

    Args:
        placed: factors that found their layer, by its name.

    Problems: `MODULES_MISSING`, `MODULE_NOT_TARGETED`.
    """
    if draft.targets is None:
        return []
    outputs = output_modules(base)
    targets = draft.targets
    named = {name: naming.adapter_name(name) for name in known}
    expected = {
        name
        for name, inside in named.items()
        if inside is not None and targets(inside, known[name].kind, name in outputs)
    }
    there = _present(draft, naming, known, placed)
    missing = sorted(name for name in expected - there.keys() if not known[name].optional)
    problems = [_missing(named[name] or name) for name in missing]
    return problems + [_not_targeted(there[name], named[name] or name) for name in sorted(there.keys() - expected)]


def _present(draft: Draft, naming: Naming, known: Mapping[str, Layer], placed: Mapping[str, Piece]) -> dict[str, Piece]:
    """Which layers the file has factors for, whether or not they fit."""
    found = {name: piece for name, piece in placed.items() if name in known}
    settled = {id(piece) for piece in found.values()}
    for piece in draft.pieces:
        for candidate in () if id(piece) in settled else candidates(piece):
            name = naming.base_name(candidate) or ""
            layer = name if name in known else name.removesuffix(".weight")
            if layer in known:
                found[layer] = piece
    return found


def _missing(module: str) -> Problem:
    hint = "The save was incomplete, or target_modules names more than was trained."
    path = ("adapter_config.json", "target_modules", module)
    return problem("MODULES_MISSING", path, "factors for every targeted module", "none in the file", hint)


def _not_targeted(piece: Piece, module: str) -> Problem:
    hint = "PEFT would drop these tensors without a word; name the module in target_modules."
    path = (piece.tensors["a"].file, module)
    return problem("MODULE_NOT_TARGETED", path, "a module that target_modules names", "not named", hint)
