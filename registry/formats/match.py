"""A draft held against a base: names by a named rule, and every factor beside its layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from registry.formats.base.modules import Layer, layers
from registry.formats.complete import candidates, completeness_problems
from registry.formats.draft import Draft, Piece
from registry.formats.factors import factor_problems, order_of, rank_in
from registry.formats.remembered import Remembered
from registry.formats.replacements import replacement_problems, tied_factors
from registry.formats.report import problem, refuse_all, shown
from registry.formats.wrappers import Naming, find_naming
from schemas.adapter import Order
from schemas.base import BaseManifest
from schemas.digests import Digest
from schemas.errors import Problem

_TARGET_HINT: Final = "Register the adapter against the base it was trained on, under that base's own module names."


@dataclass(frozen=True)
class Placed:
    """A factor at its place: its layer under the base's name, how a and b make the delta, and the tensors' rank."""

    piece: Piece
    module: str
    layer: Layer
    order: Order
    rank: int


@dataclass(frozen=True)
class Match:
    """How a draft lies on a base; `replacements` gives the base's name of each; registration refuses `problems`."""

    naming: Naming
    placed: tuple[Placed, ...]
    replacements: Mapping[str, str]
    problems: tuple[Problem, ...]


_MATCHES: Final = Remembered[tuple[Draft, Digest], Match]()


def match(draft: Draft, base: BaseManifest) -> Match:
    """Lay a draft on a base.

    Raises:
        RefusedError: `BASE_SHAPES_UNKNOWN`; whatever else is wrong is in `problems`: those of the draft, of every
            factor and replacement, `TARGET_MODULE_MISSING`, `MODULES_MISSING`, `MODULE_NOT_TARGETED`, `ADAPTER_EMPTY`.
    """
    known = layers(base)
    names = [name for piece in draft.pieces for name in candidates(piece)]
    naming = find_naming(names, known, base.architecture.model_type)
    problems: list[Problem] = []
    placed = _single([_place(piece, naming, known, problems) for piece in sorted(draft.pieces, key=_order)], problems)
    replacements = {name: tensor_name(naming, name, base) for name in draft.replacements}
    problems += completeness_problems(draft, base, naming, known, {item.module: item.piece for item in placed})
    problems += replacement_problems(draft, replacements, base)
    problems += tied_factors({item.module: item.piece.tensors["a"] for item in placed}, known)
    problems += draft.problems
    if not draft.pieces:
        path = draft.weights[:1]
        problems.append(problem("ADAPTER_EMPTY", path, "at least one module", "no tensors", "Save it again."))
    return Match(naming, tuple(placed), replacements, tuple(problems))


def matched(draft: Draft, base: BaseManifest) -> Match:
    """The same, refusing everything that is wrong at once."""
    known = _MATCHES.get((draft, base.digest))
    if known is not None:
        return known
    found = match(draft, base)
    refuse_all(found.problems)
    return _MATCHES.put((draft, base.digest), found)


def _order(piece: Piece) -> tuple[str, int, str]:
    return piece.module, -1 if piece.expert is None else piece.expert, piece.tensors["a"].name


def _place(piece: Piece, naming: Naming, known: Mapping[str, Layer], problems: list[Problem]) -> tuple[Placed, ...]:
    """Every place a factor fits; what is wrong where it fits none, or none of its names is in the base."""
    names = [name for name in map(naming.base_name, candidates(piece)) if name is not None]
    offered = {name: layer for name in names for layer in [_layer(name, known)] if layer is not None}
    wrong = {name: factor_problems(piece, layer) for name, layer in offered.items()}
    fitting = tuple(_placed(piece, name, offered[name]) for name in offered if not wrong[name])
    if not offered:
        problems += [_lost(piece, names), *factor_problems(piece, None)]
    elif not fitting:
        problems += next(iter(wrong.values()))
    return fitting


def _layer(name: str, known: Mapping[str, Layer]) -> Layer | None:
    """A layer by its name; a matrix targeted as a parameter is taken as it lies, whatever its layer does with it."""
    if name in known or not name.endswith(".weight"):
        return known.get(name)
    layer = known.get(name.removesuffix(".weight"))
    return None if layer is None else replace(layer, kind="parameter")


def _placed(piece: Piece, name: str, layer: Layer) -> Placed:
    module = name if layer.kind != "parameter" else name.removesuffix(".weight")
    return Placed(piece, module, layer, order_of(layer), rank_in(piece, layer))


def _single(found: list[tuple[Placed, ...]], problems: list[Problem]) -> list[Placed]:
    """One place a factor; where several fit, those that other factors need are theirs, and one must be left."""
    taken = {places[0].module for places in found if len(places) == 1}
    single = []
    for places in found:
        free = places if len(places) == 1 else tuple(place for place in places if place.module not in taken)
        if len(free) == 1:
            single.append(free[0])
        elif places:
            problems.append(_ambiguous(places))
    return single


def _ambiguous(places: tuple[Placed, ...]) -> Problem:
    hint = "Adapt parameters of different shapes, or one parameter a module, so that the tensors say which is which."
    observed = ", ".join(place.module for place in places)
    return problem("FACTOR_AMBIGUOUS", places[0].piece.tensors["a"].place, "one parameter it fits", observed, hint)


def _lost(piece: Piece, names: list[str]) -> Problem:
    path = (piece.tensors["a"].file, piece.module)
    observed = f"no {shown(names[0] if names else piece.module)}"
    return problem("TARGET_MODULE_MISSING", path, "a layer of the base", observed, _TARGET_HINT)


def tensor_name(naming: Naming, name: str, base: BaseManifest) -> str:
    """The base's name of a replaced tensor; one the base lacks, a trained head, keeps its own."""
    module, _, leaf = name.rpartition(".")
    renamed = f"{naming.base_name(module) or module}.{leaf}"
    stored = renamed.partition("#")[0]
    return renamed if not isinstance(base.weights, str) and stored in base.weights else name
