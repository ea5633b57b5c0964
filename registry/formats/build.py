"""From a placed draft and its scanned tensors to the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from registry.formats.base.modules import layers
from registry.formats.draft import Draft, Piece
from registry.formats.match import Match, Placed
from registry.formats.outline import Outline
from registry.formats.pairs import PAIR
from registry.formats.readings import Written
from registry.formats.remembered import Remembered
from registry.formats.replacements import tied_replacements
from registry.formats.report import refuse_all
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import ScannedFile, ScannedTensor
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement
from schemas.base import BaseManifest
from schemas.digests import Digest, manifest_digest
from schemas.errors import Problem
from validators import judge_adapter, judged_by_form, problem_of

_Form: TypeAlias = tuple[Draft, Digest, frozenset[str]]
_LARGEST: Final = 2**18
"""Bytes of a manifest whose outline is kept in case the next adapter has the same form."""
_OUTLINES: Final = Remembered[_Form, Outline]()
"""By draft, base and what is replaced: everything in a manifest but the tensors' digests."""


@dataclass(frozen=True)
class Scanned:
    """Every tensor that was read, by its entry."""

    files: tuple[ScannedFile, ...]
    tensors: Mapping[TensorEntry, ScannedTensor]

    def digests(self, entries: Iterable[TensorEntry]) -> list[Digest]:
        """Those of these tensors, in order."""
        return [self.tensors[entry].digest for entry in entries]


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


def written(
    draft: Draft, found: Match, base: BaseManifest, tensors: Scanned, whole: Mapping[str, TensorEntry]
) -> Written:
    """The manifest as it is stored, its factors and replacements in identity order.

    Raises:
        RefusedError: what contradicts the contract of its family, under the codes of a decision.
    """
    form = (draft, base.digest, frozenset(whole))
    outline = _OUTLINES.get(form)
    if outline is not None:
        data = outline.filled(tensors.digests(outline.entries))
    else:
        made, entries = _made(draft, found, base, tensors, whole)
        data = made.canonical()
        outline = Outline.of(data, entries, tensors.digests(entries))
        if len(data) <= _LARGEST and judged_by_form(draft.family):
            _OUTLINES.put(form, outline)
    digest = manifest_digest(AdapterManifest.KIND, data)
    return Written(digest, data, base.digest, draft.family, frozenset(tensors.digests(outline.entries)))


def _made(
    draft: Draft, found: Match, base: BaseManifest, tensors: Scanned, whole: Mapping[str, TensorEntry]
) -> tuple[AdapterManifest, tuple[TensorEntry, ...]]:
    """The manifest, and its tensors in the order in which its bytes name them."""
    digest = base.digest
    factors = sorted([(_factor(placed, digest, tensors.tensors), placed.piece) for placed in found.placed], key=_site)
    names = sorted(whole)
    made = AdapterManifest(
        base=digest,
        factors=tuple([factor for factor, _ in factors]),
        family=draft.family,
        initializer=draft.initializer,
        payload=draft.payload,
        full_replacements=tuple([FullReplacement(name=name, value=tensors.tensors[whole[name]].ref) for name in names]),
        training=dict(draft.training),
    )
    refuse_all(problem_of(found) for found in judge_adapter(made, base) if found.severity == "refuse")
    paired = [piece.tensors[role] for _, piece in factors for role in ("a", "b", *sorted(piece.tensors.keys() - PAIR))]
    return made, (*paired, *(whole[name] for name in names))


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


def _site(placed: tuple[FactorManifest, Piece]) -> tuple[str, int, int, str]:
    return placed[0].site
