"""From a placed draft and its scanned tensors to the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from registry.formats.base.modules import layers
from registry.formats.draft import Draft
from registry.formats.match import Match, Placed
from registry.formats.replacements import tied_replacements
from registry.formats.report import refuse_all
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import ScannedFile, ScannedTensor
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, sorted_factors
from schemas.base import BaseManifest
from schemas.errors import Problem
from validators import judge_adapter, problem_of


@dataclass(frozen=True)
class Scanned:
    """Every tensor that was read, by its entry."""

    files: tuple[ScannedFile, ...]
    tensors: Mapping[TensorEntry, ScannedTensor]


def scanned(files: Iterable[ScannedFile]) -> Scanned:
    """Index what was read."""
    every = tuple(files)
    return Scanned(every, {tensor.entry: tensor for file in every for tensor in file.tensors})


def replaced(draft: Draft, found: Match, base: BaseManifest, tensors: Scanned) -> dict[str, TensorEntry]:
    """The tensors that replace something, by the base's name: a copy of the base's own replaces nothing."""
    return {
        found.replacements[name]: entry
        for name, entry in draft.replacements.items()
        if not is_copy(found.replacements[name], entry, base, tensors)
    }


def is_copy(name: str, entry: TensorEntry, base: BaseManifest, tensors: Scanned) -> bool:
    """Whether a stored tensor is the base's own, bit for bit; it then witnesses which base the adapter is of."""
    weight = None if isinstance(base.weights, str) else base.weights.get(name)
    return weight is not None and weight.tensor == tensors.tensors[entry].digest


def replaced_problems(entries: Mapping[str, TensorEntry], base: BaseManifest) -> list[Problem]:
    """What a replacement must not touch: a table the base ties to its output."""
    return tied_replacements(entries, layers(base)) if entries else []


def manifest_of(
    draft: Draft, found: Match, base: BaseManifest, tensors: Scanned, whole: Mapping[str, TensorEntry]
) -> AdapterManifest:
    """The adapter, its factors and replacements in identity order.

    Raises:
        RefusedError: what contradicts the contract of its family, under the codes of a decision.
    """
    digest = base.digest
    made = AdapterManifest(
        base=digest,
        factors=sorted_factors([_factor(placed, digest, tensors.tensors) for placed in found.placed]),
        family=draft.family,
        initializer=draft.initializer,
        payload=draft.payload,
        full_replacements=tuple(
            FullReplacement(name=name, value=tensors.tensors[whole[name]].ref) for name in sorted(whole)
        ),
        training=dict(draft.training),
    )
    refuse_all(problem_of(found) for found in judge_adapter(made, base) if found.severity == "refuse")
    return made


def _factor(placed: Placed, base: str, tensors: Mapping[TensorEntry, ScannedTensor]) -> FactorManifest:
    piece = placed.piece
    refs = {role: tensors[entry].ref for role, entry in piece.tensors.items()}
    return FactorManifest(
        base=base,
        module=placed.module,
        expert=piece.expert,
        map_head=piece.map_head,
        route_side=piece.route_side,
        a=refs.pop("a"),
        b=refs.pop("b"),
        order=placed.order,
        rank=placed.rank,
        scale=piece.scale,
        extra=refs,
        source=piece.source,
    )
