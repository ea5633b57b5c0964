"""The fields of a composition spec, listed from the models themselves so that help and parser cannot disagree."""

from __future__ import annotations

import types
import typing
from typing import Final

from pydantic import BaseModel

from schemas.methods import DtypeChoices, PruneChoices, SvdChoices, TiesChoices
from schemas.spec import CompositionSpec, DareSpec, SpecMember, TiesPreset

_PARTS: Final[dict[str, tuple[type[BaseModel], ...]]] = {
    "a member": (SpecMember,),
    "ties": (TiesPreset, TiesChoices),
    "dare": (DareSpec,),
    "prune": (PruneChoices,),
    "svd": (SvdChoices,),
    "dtype": (DtypeChoices,),
}


def _field(name: str, model: type[BaseModel]) -> str:
    info = model.model_fields[name]
    words = _words(info.annotation)
    shown = f"{name}: {' | '.join(words)}" if words else name
    if info.is_required() or not words or info.default is None:
        return shown
    return f"{shown} [{info.default}]"


def _words(annotation: object) -> tuple[str, ...]:
    """The literal values a field may have; empty when it is not a choice among words."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return tuple(str(word) for word in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return tuple(word for part in typing.get_args(annotation) for word in _words(part))
    return ()


def _paragraph(title: str, model: type[BaseModel]) -> str:
    return f"{title}: " + "; ".join(_field(name, model) for name in model.model_fields) + "."


SPEC_HELP: Final = "\n\n".join(
    [
        _paragraph("Fields of SPEC", CompositionSpec),
        *(_paragraph(title, model) for title, models in _PARTS.items() for model in models),
    ]
)
"""One paragraph a model, for `registry admit --help`."""
