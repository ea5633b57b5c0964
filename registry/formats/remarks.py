"""What a reader should know of an adapter that its manifest does not hold: idle factors, a lying flag, a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from registry.formats.base.tokenizer import read_tokenizer
from registry.formats.build import Scanned
from registry.formats.directory import Directory, open_directory
from registry.formats.draft import Draft, Piece
from registry.formats.match import Match
from registry.formats.readings import Note
from registry.formats.report import problem
from registry.formats.safetensors_file import TensorEntry
from registry.formats.snapshot import Floats, ReadWeight, repetition
from registry.formats.values import floats
from schemas.base import BaseManifest
from schemas.errors import Problem


@dataclass(frozen=True)
class Remarks:
    """Condition codes, figures beside them, and what is refused."""

    conditions: tuple[str, ...] = ()
    notes: dict[str, Note] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def __add__(self, other: Remarks) -> Remarks:
        return Remarks(
            (*self.conditions, *other.conditions), self.notes | other.notes, (*self.problems, *other.problems)
        )


def idle(pieces: Iterable[Piece], tensors: Scanned) -> Remarks:
    """`B_ALL_ZERO`: every product is zero by a factor of zeros, so the adapter does nothing.

    A magnitude vector changes the base by itself, so DoRA is never idle by its factors alone.
    """
    every = tuple(pieces)
    still = all("magnitude" not in piece.tensors and _zero(piece, tensors) for piece in every)
    return Remarks(("B_ALL_ZERO",) if still else ())


def repeats_base(draft: Draft, found: Match, directory: Directory, scratch: Path, weight: ReadWeight | None) -> Remarks:
    """`BASE_REPEATED`: factors that the config calls plain hold a part of the base weight, with the correlation."""
    if weight is None or draft.payload != "portable" or draft.initializer != "none":
        return Remarks()
    files = {**dict.fromkeys(draft.weights, directory), **{name: open_directory(scratch) for name in draft.made}}
    with ExitStack() as stack:
        streams = {name: stack.enter_context(place.open(name)) for name, place in files.items()}
        result = repetition(found.placed, lambda entry: _values(streams[entry.file], entry), weight)
    if result is None:
        return Remarks()
    figure: dict[str, Note] = {"base_correlation": float(f"{result.correlation:.3g}")}
    return Remarks(("BASE_REPEATED",) if result.found else (), figure)


def tokenizer(directory: Directory, base: BaseManifest) -> Remarks:
    """`TOKENIZER_LENGTH` refused, `TOKENIZER_OTHER` a condition: the tokenizer beside an adapter is the base's."""
    found, _ = read_tokenizer(directory)
    if found is None or base.tokenizer == "none" or found == base.tokenizer:
        return Remarks()
    if found.length == base.tokenizer.length:
        return Remarks(("TOKENIZER_OTHER",))
    hint = "Tokens were added or removed: register the base that was resized for this tokenizer, and use that one."
    expected, observed = f"{base.tokenizer.length} ids, as the base has", f"{found.length} ids"
    return Remarks(problems=(problem("TOKENIZER_LENGTH", ("tokenizer.json",), expected, observed, hint),))


def _zero(piece: Piece, tensors: Scanned) -> bool:
    bias = piece.tensors.get("bias")
    if bias is not None and not tensors.tensors[bias].all_zero:
        return False
    return any(tensors.tensors[piece.tensors[role]].all_zero for role in ("b", "E", "diag") if role in piece.tensors)


def _values(stream: BinaryIO, entry: TensorEntry) -> Floats | None:
    if isinstance(stream, BytesIO):
        data: bytes | memoryview = memoryview(stream.getvalue())[entry.offset : entry.offset + entry.length]
    else:
        stream.seek(entry.offset)
        data = stream.read(entry.length)
    return floats(data, entry.dtype, entry.shape) if len(data) == entry.length else None
